// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// sockets are sockets by path, with their creation times: a recreated socket is a different one.
type sockets map[string]time.Time

// otherSockets returns the sockets of other plugins in both directories, for any resource, because a socket
// does not name its resource. It omits the given socket of the resource, and this program's sockets for other
// resources. The second directory does not exist everywhere.
func otherSockets(kubeletDir, socket, resource string) (sockets, error) {
	found := sockets{}
	for _, dir := range []string{"device-plugins", registryFolder} {
		entries, err := os.ReadDir(filepath.Join(kubeletDir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the sockets of other plugins: %w", err)
		}
		for _, entry := range entries {
			name, path := entry.Name(), filepath.Join(kubeletDir, dir, entry.Name())
			own := path == socket || ownForm.MatchString(name) && !namedAfter(path, resource)
			if entry.Type() != fs.ModeSocket || name == kubeletSocket || own {
				continue
			}
			if info, err := entry.Info(); err == nil {
				found[path] = info.ModTime()
			}
		}
	}
	return found, nil
}

// named returns the sockets with a name for a resource that are not among earlier ones: the kubelet uses the
// plugin that registered last.
func (s sockets) named(resource string, earlier sockets) sockets {
	named := maps.Clone(s)
	maps.DeleteFunc(named, func(path string, made time.Time) bool {
		return made.Equal(earlier[path]) || !namedAfter(path, resource)
	})
	return named
}

// living returns the sockets with a listener.
func (s sockets) living() sockets {
	alive := maps.Clone(s)
	maps.DeleteFunc(alive, func(path string, made time.Time) bool {
		info, err := os.Lstat(path)
		return err != nil || !info.ModTime().Equal(made) || dead(path)
	})
	return alive
}

// ownForm is the form of this program's socket names.
var ownForm = regexp.MustCompile("^(.*)" + suffix + "$")

// namedAfter reports whether a socket path has a name that plugins derive from a resource: vendor.com_kind
// and vendor-kind for vendor.com/kind, or this program's form for another instance.
func namedAfter(path, resource string) bool {
	dir, socket := filepath.Split(path)
	if own := ownForm.FindStringSubmatch(socket); own != nil {
		return own[1] == socketPrefix(filepath.Clean(dir), resource)
	}
	vendor, kind, _ := strings.Cut(resource, "/")
	company, _, _ := strings.Cut(vendor, ".")
	name := strings.TrimSuffix(socket, ".sock")
	return name == vendor+"_"+kind || name == company+"-"+kind
}
