// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/manifest"
)

// Names in Kueue's manifests.
const (
	kueueNamespace = "kueue-system"
	kueueAccount   = "kueue-controller-manager"
	kueueService   = "kueue-webhook-service"
	kueueSecret    = "kueue-webhook-server-cert"
)

// StartKueue applies Kueue's manifests in a folder, starts its manager with the permissions from them, and
// waits until it is ready. The manager handles only Jobs.
func (p *Plane) StartKueue(manifests string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), startTime)
	defer cancel()
	ports, err := freePorts(2)
	if err != nil {
		p.t.Fatal(err)
	}
	health, webhooks := ports[0], netip.MustParseAddrPort(ports[1])
	if err := applyKueue(ctx, p, manifests, webhooks); err != nil {
		p.t.Fatal(err)
	}
	client := p.Client(p.Admin())
	token, err := client.CoreV1().ServiceAccounts(kueueNamespace).CreateToken(ctx, kueueAccount,
		&authentication.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	certificates, file := p.path("kueue-certificates"), p.path("kueue.yaml")
	err = errors.Join(os.Mkdir(certificates, 0o700),
		os.WriteFile(file, []byte(kueueConfig(health, webhooks, certificates)), 0o600))
	if err != nil {
		p.t.Fatal(err)
	}
	p.start("kueue", filepath.Join(p.options.Programs, "kueue", "kueue"), "--config="+file,
		"--kubeconfig="+p.Kubeconfig(token.Status.Token))
	err = p.until(ctx, "kueue", func() error { return mountCertificates(ctx, client, certificates) })
	if err == nil {
		err = p.until(ctx, "kueue", func() error { return get(ctx, "http://"+health+"/readyz") })
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func kueueConfig(health string, webhooks netip.AddrPort, certificates string) string {
	return fmt.Sprintf(`apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: %s
health: {healthProbeBindAddress: %q}
metrics: {bindAddress: "0"}
webhook: {host: %q, port: %d, certDir: %q}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: true, webhookServiceName: %s, webhookSecretName: %s}
integrations: {frameworks: [batch/job]}
featureGates: {VisibilityOnDemand: false}
`, kueueNamespace, health, webhooks.Addr(), webhooks.Port(), certificates, kueueService, kueueSecret)
}

// applyKueue applies all objects except the manager's Deployment and the API that it would serve. Without a
// pod network, the service of the webhooks leads to this host.
func applyKueue(ctx context.Context, p *Plane, manifests string, webhooks netip.AddrPort) error {
	change := func(o *unstructured.Unstructured) (bool, error) {
		switch o.GetKind() {
		case "Deployment", "APIService":
			return false, nil
		case "Service":
			o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": webhooks.Addr().String()}
		case "CustomResourceDefinition":
			conversion, found, err := unstructured.NestedMap(o.Object, "spec", "conversion", "webhook")
			if err != nil || !found {
				return true, err
			}
			if err := lead(conversion, webhooks); err != nil {
				return true, err
			}
			return true, unstructured.SetNestedMap(o.Object, conversion, "spec", "conversion", "webhook")
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			for _, webhook := range o.Object["webhooks"].([]any) {
				if err := lead(webhook.(map[string]any), webhooks); err != nil {
					return true, err
				}
			}
		}
		return true, nil
	}
	return manifest.ApplyChanged(ctx, p.Admin(), manifests, kueueNamespace, change)
}

// lead redirects a webhook to a port.
func lead(webhook map[string]any, to netip.AddrPort) error {
	return unstructured.SetNestedField(webhook, int64(to.Port()), "clientConfig", "service", "port")
}

// mountCertificates writes the manager's certificates to the mount path of their Secret.
func mountCertificates(ctx context.Context, client kubernetes.Interface, dir string) error {
	secret, err := client.CoreV1().Secrets(kueueNamespace).Get(ctx, kueueSecret, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, name := range []string{"tls.key", "tls.crt"} { // the manager looks for the second
		if len(secret.Data[name]) == 0 {
			return fmt.Errorf("mount Secret %s: it has no %s", kueueSecret, name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), secret.Data[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	return nil
}

// until retries until success, as long as a program runs.
func (p *Plane) until(ctx context.Context, program string, try func() error) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.running[program].Done():
			return p.running[program].Ended()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", program, err)
		}
	}
}
