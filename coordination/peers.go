// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync"

	grpcpeer "google.golang.org/grpc/peer"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// joined is a connected plugin. Only its Join call changes it, through peers.
type joined struct {
	pid       int64
	version   version
	build     string // version of the plugin's program; "" if not reported
	resources []string
}

// peers are the connected plugins.
type peers struct {
	mu  sync.Mutex
	all []*joined
}

func (p *peers) join(ctx context.Context) *joined {
	j := &joined{}
	if caller, ok := grpcpeer.FromContext(ctx); ok {
		if known, ok := caller.AuthInfo.(peer); ok {
			j.pid = int64(known.pid)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, j)
	return j
}

// leave calls gone with every resource of a plugin that no other plugin has: during a rolling update the new
// plugin starts before the old one ends.
func (p *peers) leave(j *joined, gone func(resource string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(other *joined) bool { return other == j })
	for _, name := range j.resources {
		if !slices.ContainsFunc(p.all, func(other *joined) bool { return slices.Contains(other.resources, name) }) {
			gone(name)
		}
	}
}

func (p *peers) announced(j *joined, m *api.Announcement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.version, j.build = versionOf(m.GetVersion()), m.GetVersion().GetBuild()
	if !slices.Contains(j.resources, m.GetResource()) {
		j.resources = append(j.resources, m.GetResource())
	}
}

// encode lists the plugins that have announced devices: before an announcement their version is unknown.
func (p *peers) encode() []*api.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*api.Peer, 0, len(p.all))
	for _, j := range p.all {
		if len(j.resources) == 0 {
			continue
		}
		list = append(list, &api.Peer{
			Pid:       j.pid,
			Serves:    j.pid == int64(os.Getpid()),
			Version:   &api.Version{Major: j.version.major, Minor: j.version.minor, Build: j.build},
			Resources: slices.Sorted(slices.Values(j.resources)),
		})
	}
	slices.SortStableFunc(list, func(a, b *api.Peer) int { return cmp.Compare(a.GetPid(), b.GetPid()) })
	return list
}
