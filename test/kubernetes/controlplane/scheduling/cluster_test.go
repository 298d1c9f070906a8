// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/manifest"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// Manifests as they are shipped.
const (
	definition = "../../../../deployments/publish/crd.yaml"
	deployed   = "../../../../deployments/scheduler"
)

// start starts a control plane with what users install for tandem-scheduler. No controller makes pods of its
// Deployment.
func start(t *testing.T, o plane.Options) (*plane.Plane, kubernetes.Interface) {
	t.Helper()
	p := plane.Start(t, o)
	client := p.Client(p.Admin())
	if err := install(t.Context(), p.Admin(), client); err != nil {
		t.Fatal(err)
	}
	return p, client
}

func install(ctx context.Context, admin *rest.Config, client kubernetes.Interface) error {
	if err := account(ctx, client); err != nil {
		return err
	}
	if err := manifest.ApplyFile(ctx, admin, definition, ""); err != nil {
		return err
	}
	if err := manifest.ApplyFolder(ctx, admin, deployed, metav1.NamespaceSystem); err != nil {
		return err
	}
	return manifest.Served(ctx, admin, "/apis/"+v1alpha1.GroupVersion.String()+"/"+v1alpha1.Plural)
}

// account makes the service account that pods need.
func account(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
