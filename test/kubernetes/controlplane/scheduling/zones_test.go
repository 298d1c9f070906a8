// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/manifest"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// matching is a scheduler of Kubernetes 1.34 with NodeResourceTopologyMatch, the last one that the plugin is
// served for: older than Kubernetes lets a scheduler be, which is one minor version behind the API server.
// MostAllocated decides where the plugin has no preference.
func matching(args string) started {
	return started{program: "nrtmatch", name: "default-scheduler", profiles: mostAllocated + `
  - name: NodeResourceTopologyMatch
    args: {scoringStrategy: {type: LeastNUMANodes}, ` + args + `}
  plugins:
    multiPoint: {enabled: [{name: NodeResourceTopologyMatch, weight: 10}]}
`}
}

// The plugin reserves what pods ask for until it reads the node anew, or asks for the objects of all nodes
// for each pod.
var (
	byReserving = matching("cacheResyncPeriodSeconds: 1")
	byAsking    = matching("discardReservedNodes: true")
)

// zones reports whether a scheduler reads NodeResourceTopology objects.
func (c choice) zones() bool {
	return slices.Contains(c.schedulers, byReserving) || slices.Contains(c.schedulers, byAsking)
}

// prepare defines the objects that a scheduler reads, and lets it read them.
func (c choice) prepare(t *testing.T, p *plane.Plane) {
	t.Helper()
	if !c.zones() {
		return
	}
	ctx, admin := t.Context(), p.Admin()
	if err := manifest.ApplyFolder(ctx, admin, "../../../definitions/noderesourcetopology", ""); err != nil {
		t.Fatal(err)
	}
	if err := manifest.Served(ctx, admin, fleet.ZonesCollection); err != nil {
		t.Fatal(err)
	}
	rights := p.Client(admin).RbacV1()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "zones"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"topology.node.k8s.io"}, Resources: []string{"noderesourcetopologies"},
			Verbs: []string{"get", "list", "watch"},
		}},
	}
	if _, err := rights.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler",
		}},
	}
	if _, err := rights.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
