package sysfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/k8snetworkplumbingwg/sriovnet"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/filesystem"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/netlinkops"
	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/topology"
)

// sriovnet reads /sys through a package variable of its own. It is set here and nowhere else: to the root in question for
// the time of one call, under this lock. That is the only state of this package outside its values.
var sriovnetLock sync.Mutex

// below calls a function of sriovnet with its /sys being the root. What it would ask netlink fails, so that it takes the
// same fact from sysfs: one way for live nodes and recorded machines. Functions of sriovnet that go past the variable
// cannot be used: GetVfIndexByPciAddress is one.
func below(sys fs.FS, call func() (string, error)) (string, error) {
	sriovnetLock.Lock()
	defer sriovnetLock.Unlock()
	before := filesystem.Fs
	filesystem.Fs = rootedFS{sys: sys}
	netlinkops.SetNetlinkOps(noNetlink{})
	defer func() {
		filesystem.Fs = before
		netlinkops.ResetNetlinkOps()
	}()
	return call()
}

// Uplink returns the netdev of a PF in switchdev mode that is its port; an error in any other mode.
func Uplink(sys fs.FS, pf topology.Address) (string, error) {
	return below(sys, func() (string, error) { return sriovnet.GetUplinkRepresentor(pf.String()) })
}

// DefaultPKey returns partition key 0 of port 1 of a function's RDMA device.
func DefaultPKey(sys fs.FS, a topology.Address) (string, error) {
	return below(sys, func() (string, error) { return sriovnet.GetDefaultPKeyFromPci(a.String()) })
}

// rootedFS gives sriovnet the files of a root under the names it knows, /sys/…. The rest of the interface writes; a nil
// Filesystem panics should sriovnet ever do so from the two functions above.
type rootedFS struct {
	filesystem.Filesystem
	sys fs.FS
}

func (r rootedFS) name(file string) string { return strings.TrimPrefix(path.Clean(file), "/sys/") }

func (r rootedFS) Stat(file string) (os.FileInfo, error) { return fs.Stat(r.sys, r.name(file)) }
func (r rootedFS) Readlink(file string) (string, error)  { return fs.ReadLink(r.sys, r.name(file)) }
func (r rootedFS) ReadFile(file string) ([]byte, error)  { return fs.ReadFile(r.sys, r.name(file)) }
func (r rootedFS) ReadDir(dir string) ([]os.FileInfo, error) {
	entries, err := fs.ReadDir(r.sys, r.name(dir))
	if err != nil {
		return nil, err
	}
	var infos []os.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	return infos, nil
}

// noNetlink answers the one question to netlink that the two functions have.
type noNetlink struct{ netlinkops.NetlinkOps }

func (noNetlink) DevLinkGetAllPortList() ([]*netlink.DevlinkPort, error) {
	return nil, errors.New("not asked")
}
