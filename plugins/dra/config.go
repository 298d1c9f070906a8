// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/topology"
)

// Config configures a Driver.
type Config struct {
	NodeName   string // node name in Kubernetes, also the name of the pool
	PodUID     string // UID of the driver's pod; "" if no other pod replaces it without a gap
	KubeletDir string // the kubelet's root directory
	RunDir     string // the run directory: coordination.RunDir
	CDIDir     string // directory of CDI specs, /var/run/cdi
	Client     kubernetes.Interface

	// The driver's connections on the node, for simulations; nil for unix sockets in KubeletDir and RunDir.
	Kubelet Kubelet                                                      // the kubelet's pods
	Listen  func(ctx context.Context, path string) (net.Listener, error) // for the kubelet's calls
	Socket  coordination.Socket                                          // of the status

	GPUs *gpu.GPUs // may be nil; run by the driver, like the VFs
	VFs  *rdma.VFs // may be nil
	// NoGPUs is the reason why GPUs of the node are not published, for the status; "" without such GPUs.
	NoGPUs string
	// Tree reads the PCI tree, with devices at their actual locations.
	Tree func() (*topology.Tree, error)
	Host grants.Host // locations of files on the machine; the driver sets PairsDir and CDI

	Policy     intent.Policy // alignment annotations that pods may use
	VFsPerPF   int           // maximum number of published VFs of a PF; 0 for all
	PairsAsVFs bool          // see pool.Options
	// Drain unprepares claims and does nothing else: for a node in device plugin mode on which pods with
	// claims still run.
	Drain bool

	Observer DriverObserver // may be nil
	// Unsound receives the unsound devices of claims every 10 s, all of them each time. It must return
	// immediately. May be nil.
	Unsound func([]coordination.Unsound)
	Log     *slog.Logger
}

// DriverObserver receives events of a Driver. Its methods must return immediately and be safe for concurrent
// use.
type DriverObserver interface {
	// Registered reports that the kubelet knows the driver.
	Registered(driver string)
	// Claims reports a call of the kubelet to prepare or unprepare claims, and the number of failed claims.
	Claims(call string, took time.Duration, claims, failed int)
}

// Calls reported to a DriverObserver.
const (
	Prepare   = "prepare"
	Unprepare = "unprepare"
)

// PluginDir returns the driver's directory below the kubelet's, which persists over boots: it contains the
// socket and the prepared claims (package mode).
func PluginDir(kubeletDir string) string { return filepath.Join(kubeletDir, "plugins", pool.Driver) }

// registryDir returns the directory in which the kubelet finds plugins other than device plugins.
func registryDir(kubeletDir string) string { return filepath.Join(kubeletDir, "plugins_registry") }

// Check returns an error in one sentence if the driver cannot work with the configured paths.
func Check(config Config) error {
	if config.NodeName == "" {
		return errors.New("publish the node's devices: the node's name is not known: " +
			"set --node-name, or NODE_NAME from spec.nodeName")
	}
	if _, err := os.Stat(registryDir(config.KubeletDir)); err != nil {
		return fmt.Errorf("find the kubelet's registry of plugins: %w: check that a kubelet runs on this node and "+
			"that --kubelet-dir is its root folder", err)
	}
	return nil
}
