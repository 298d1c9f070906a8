// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"sync"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// Questions of other clients that wait, as many as their connections have room for, keep no plugin's Allocate
// from the coordinator, in the process that serves or in another one.
func TestWaitingClientsTakeNoRoom(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := server.election.serving.Load().coordinator
	own, waits, goOn := c.Kubelet, make(chan struct{}, 1), make(chan struct{})
	c.Kubelet = lister{own, func() (kubelet.View, error) {
		select {
		case waits <- struct{}{}:
		default:
		}
		<-goOn
		return kubelet.View{}, kubelet.ErrNotRead
	}}
	var clients sync.WaitGroup
	for range 2 {
		conn, err := dialRunDir(server.config.RunDir)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range maxCalls {
			clients.Go(func() {
				_, _ = api.NewCoordinationClient(conn).Prefer(t.Context(), &api.PreferRequest{
					Resource: gpus, Available: offered[gpus], Size: 1,
				})
			})
		}
	}
	<-waits
	ctx, cancel := context.WithTimeout(t.Context(), 10*system.QuestionLimit)
	defer cancel()
	for name, member := range members {
		if _, err := member.report(ctx, member.StartAllocate(offered[name][:1])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(goOn)
	clients.Wait()
	c.Kubelet = own
}
