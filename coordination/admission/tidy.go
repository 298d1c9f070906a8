package admission

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
)

// unclaimed is how long a pairs file stays that the kubelet's checkpoint does not have: it may be of a container that is being
// admitted.
const unclaimed = 10 * time.Minute

// StayTidy tidies up from time to time until ctx is done: containers end without a word to a device plugin, and nothing else may happen
// on the node.
func (c *Coordinator) StayTidy(ctx context.Context) error {
	ticker := time.NewTicker(unclaimed)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.tidy()
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Coordinator) tidy() {
	containers, err := c.Granted()
	c.writing.Lock()
	defer c.writing.Unlock()
	c.tidyPairs(c.current(), containers, err)
}

// tidyPairs makes the pairs files those of the containers that there are. A boot takes the files, not the containers: the
// kubelet starts them with the answers it keeps. The files of containers that are gone are removed. The containers are those
// that the kubelet's checkpoint has, where it could be read.
func (c *Coordinator) tidyPairs(s *state, containers []kubelet.Granted, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return // no container was ever given devices
	}
	if err != nil {
		c.Log.Warn("leave pairs files as they are", "error", err)
		return
	}
	kept := map[string]bool{}
	for _, container := range containers {
		for _, file := range container.Mounts {
			if filepath.Dir(file) == c.pairsDir() {
				kept[file] = true
				c.restorePairs(s, file, container)
			}
		}
	}
	entries, err := os.ReadDir(c.pairsDir())
	if err != nil {
		return // there is none
	}
	for _, entry := range entries {
		file := filepath.Join(c.pairsDir(), entry.Name())
		info, err := entry.Info()
		if err == nil && !kept[file] && time.Since(info.ModTime()) > unclaimed {
			_ = os.Remove(file)
		}
	}
}

// restorePairs writes a container's pairs file where it is missing, or lacks GPUs that the container has. Where a container
// runtime has made a folder of a missing file, the folder goes.
func (c *Coordinator) restorePairs(s *state, file string, container kubelet.Granted) {
	before, err := pairs.Read(file)
	all := s.ledger.ofAll(container.Devices)
	hasGPU := slices.ContainsFunc(all, func(d given) bool { return d.kind == device.GPU })
	hasVF := slices.ContainsFunc(all, func(d given) bool { return d.kind == device.VF })
	complete := err == nil && !(hasGPU && slices.ContainsFunc(before.Pairs, func(p pairs.Pair) bool { return p.GPU == nil }))
	if complete || !hasVF {
		return
	}
	var vfs []pairs.VF
	for _, p := range before.Pairs {
		vfs = append(vfs, p.VF)
	}
	for _, d := range all {
		if d.kind == device.VF && err != nil {
			vfs = append(vfs, d.pairVF(s.tree))
		}
	}
	if info, err := os.Lstat(file); err == nil && info.IsDir() {
		_ = os.Remove(file) // fails where it is not empty, and so is not what we mean
	}
	if err := os.MkdirAll(c.pairsDir(), 0o700); err != nil {
		c.Log.Error("a container's pairs file is missing", "container", container.Container, "error", err)
		return
	}
	if err := s.ledger.pairsFile(s.tree, all, vfs).Write(file); err != nil {
		c.Log.Error("a container's pairs file is missing", "container", container.Container, "error", err)
		return
	}
	c.Log.Info("restore pairs", "container", container.Container, "file", file)
}

// pairVF is what the tree knows of a VF.
func (d given) pairVF(tree *topology.Tree) pairs.VF {
	vf := pairs.VF{ID: d.ID, Address: d.Address, Resource: d.resource}
	if function, ok := tree.Device(d.Address); ok {
		if len(function.RDMA) > 0 {
			vf.RDMA = function.RDMA[0]
		}
		if len(function.Netdevs) > 0 {
			vf.Netdev = function.Netdevs[0]
		}
	}
	return vf
}
