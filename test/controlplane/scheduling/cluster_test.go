package scheduling

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/test/controlplane/plane"
)

// start starts a control plane that knows the objects of the nodes, and whose schedulers may read them.
func start(t *testing.T, o plane.Options) (*plane.Plane, kubernetes.Interface) {
	t.Helper()
	p := plane.Start(t, o)
	client := p.Client(p.Admin())
	for _, prepare := range []func(context.Context, kubernetes.Interface) error{define, allow, account} {
		if err := prepare(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	return p, client
}

// define defines NodeTopology, and waits until the API server serves it.
func define(ctx context.Context, client kubernetes.Interface) error {
	rest := client.Discovery().RESTClient()
	definition := fmt.Sprintf(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": {"name": "%[1]s.%[2]s"},
		"spec": {"group": "%[2]s", "scope": "Cluster", "names": {"kind": "NodeTopology", "plural": "%[1]s"},
		"versions": [{"name": "%[3]s", "served": true, "storage": true, "schema": {"openAPIV3Schema":
			{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`,
		v1alpha1.Plural, v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version)
	err := rest.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		Body([]byte(definition)).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("define NodeTopology: %w", err)
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err = rest.Get().AbsPath("/apis/"+v1alpha1.GroupVersion.String(), v1alpha1.Plural).Do(ctx).Error()
		if err == nil || !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// allow lets the scheduler's user read the objects.
func allow(ctx context.Context, client kubernetes.Interface) error {
	meta := metav1.ObjectMeta{Name: "tandem-scheduler"}
	_, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.Plural},
			Verbs: []string{"get", "list", "watch"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler",
		}},
	}, metav1.CreateOptions{})
	return err
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
