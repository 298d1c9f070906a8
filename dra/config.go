package dra

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/topology"
)

// Config says what a Driver works with.
type Config struct {
	NodeName   string // in Kubernetes; the pool is called so too
	PodUID     string // of the pod that the driver runs in; "" where no other one follows it without a gap
	KubeletDir string // the kubelet's root folder
	RunDir     string // the run folder: coordination.RunDir
	CDIDir     string // where container runtimes look for CDI specs, /var/run/cdi
	Client     kubernetes.Interface

	GPUs *gpu.GPUs // nil for none; run by the driver, as the VFs are
	VFs  *rdma.VFs // nil for none
	// Tree reads the PCI tree, with the devices where they are in truth.
	Tree func() (*topology.Tree, error)
	Host grants.Host // where files of the machine are; PairsDir and CDI are the driver's

	Policy     intent.Policy // what pods may say of their alignment
	VFsPerPF   int           // VFs that are published of a PF at the most; 0 for all
	PairsAsVFs bool          // see pool.Options
	// Drain takes claims back and does nothing else: for a node in the mode of device plugins on which pods with
	// claims still run.
	Drain bool

	Observer Observer // nil for none
	Log      *slog.Logger
}

// Observer is told what a Driver does. Its methods return at once and may be called at the same time.
type Observer interface {
	// Registered says that the kubelet knows the driver.
	Registered(driver string)
	// Claims says that the kubelet had claims prepared or unprepared (the call), and how many could not be.
	Claims(call string, took time.Duration, claims, failed int)
}

// The calls that an Observer is told of.
const (
	Prepare   = "prepare"
	Unprepare = "unprepare"
)

// PluginDir is the driver's own folder below the kubelet's, which outlives boots: its socket, and the claims
// that are prepared (package claims/held).
func PluginDir(kubeletDir string) string { return filepath.Join(kubeletDir, "plugins", pool.Driver) }

// registryDir is where the kubelet finds plugins that are no device plugins.
func registryDir(kubeletDir string) string { return filepath.Join(kubeletDir, "plugins_registry") }

// Check says in one sentence what is wrong with where a Driver is to work; nil where nothing is.
func Check(config Config) error {
	if config.NodeName == "" {
		return errors.New("publish the node's devices: the node's name is not known: " +
			"say --node-name, or set NODE_NAME from spec.nodeName")
	}
	if _, err := os.Stat(registryDir(config.KubeletDir)); err != nil {
		return fmt.Errorf("find the kubelet's registry of plugins: %w: check that a kubelet runs on this node and "+
			"that --kubelet-dir is its root folder", err)
	}
	return nil
}
