// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"cmp"
	"context"
	"maps"
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
	build     string                       // version of the plugin's program; "" if not reported
	announced map[string]*api.Announcement // the last one of each resource
}

// peers are the connected plugins, in the order of their connections. During a rolling update the new plugin
// of a resource starts before the old one ends: the announcements of the newest plugin count.
type peers struct {
	mu  sync.Mutex
	all []*joined
}

func (p *peers) join(ctx context.Context) *joined {
	j := &joined{announced: map[string]*api.Announcement{}}
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

// leave removes a plugin. For each of its resources it calls count with the last announcement of the newest
// plugin left, if the announcements of the leaving one counted, and gone if no plugin is left.
func (p *peers) leave(j *joined, count func(*joined, *api.Announcement), gone func(resource string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var counted []string
	for name := range j.announced {
		if p.newest(name) == j {
			counted = append(counted, name)
		}
	}
	p.all = slices.DeleteFunc(p.all, func(other *joined) bool { return other == j })
	for _, name := range counted {
		if left := p.newest(name); left != nil {
			count(left, left.announced[name])
		} else {
			gone(name)
		}
	}
}

// announce records an announcement, and calls count if the announcement counts.
func (p *peers) announce(
	j *joined, m *api.Announcement, count func(*joined, *api.Announcement) error,
) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.version, j.build = versionOf(m.GetVersion()), m.GetVersion().GetBuild()
	j.announced[m.GetResource()] = m
	if p.newest(m.GetResource()) != j {
		return nil
	}
	return count(j, m)
}

// newest returns the plugin with a resource that has connected last, nil for none.
func (p *peers) newest(resource string) *joined {
	for _, j := range slices.Backward(p.all) {
		if j.announced[resource] != nil {
			return j
		}
	}
	return nil
}

// encode lists the plugins that have announced devices: before an announcement their version is unknown.
func (p *peers) encode() []*api.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*api.Peer, 0, len(p.all))
	for _, j := range p.all {
		if len(j.announced) == 0 {
			continue
		}
		list = append(list, &api.Peer{
			Pid:       j.pid,
			Serves:    j.pid == int64(os.Getpid()),
			Version:   &api.Version{Major: j.version.major, Minor: j.version.minor, Build: j.build},
			Resources: slices.Sorted(maps.Keys(j.announced)),
		})
	}
	slices.SortStableFunc(list, func(a, b *api.Peer) int { return cmp.Compare(a.GetPid(), b.GetPid()) })
	return list
}
