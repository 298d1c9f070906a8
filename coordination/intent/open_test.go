// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/podsapi"
)

// Sources that read no annotations enforce nothing, and say so.
func TestNothingIsEnforcedWithoutSource(t *testing.T) {
	s, err := Open(Config{
		Choice: Choice{PodResources}, KubeletDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if now, _ := s.Enforcement(); now.Enforced() || !strings.Contains(now.Why, "--intent") {
		t.Errorf("%+v", now)
	}
}

func TestOpen(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for name, tc := range map[string]struct {
		config Config
		want   string // in the error
	}{
		"default":                 {Config{Choice: Default}, ""},
		"nothing":                 {Config{Choice: Choice{}}, ""},
		"the kubelet, no address": {Config{Choice: Choice{PodsAPI, Kubelet}}, "--kubelet-address"},
		"the kubelet": {Config{
			Choice: Choice{Kubelet}, Kubelet: kubelet.Endpoint{Address: "10.0.0.7"},
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.KubeletDir, tc.config.Log = t.TempDir(), log
			s, err := Open(tc.config)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if s != nil {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A kubelet that has signed its certificate itself costs one line in the log, and the token goes nowhere:
// the chart chooses this source where it does not know the certificates.
func TestASelfSignedKubeletIsSaidOnce(t *testing.T) {
	var asked atomic.Int32
	count := func(http.ResponseWriter, *http.Request) { asked.Add(1) }
	server := httptest.NewUnstartedServer(http.HandlerFunc(count))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	for file, content := range map[string][]byte{token: []byte("secret"), ca: clusterCA(t)} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var lines bytes.Buffer
	s, err := Open(Config{
		Choice: Choice{PodsAPI, Kubelet, PodResources}, KubeletDir: dir,
		Kubelet: kubelet.Endpoint{Address: server.Listener.Addr().String(), Token: token, CA: ca},
		Log:     slog.New(slog.NewTextHandler(&lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 20 {
		for _, source := range s.sources {
			source.retry = time.Time{} // the pause is over
		}
		if answer, err := s.Pods(t.Context()); err == nil {
			t.Fatalf("%s answers", answer.Source)
		}
	}
	said := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if len(said) != 2 || !strings.Contains(said[0], "level=INFO msg=\"Pods API not available") ||
		!strings.Contains(said[1], "level=WARN msg=\"source of requests not available") ||
		!strings.Contains(said[1], "--kubelet-cert-file") {
		t.Errorf("the log has %q", said)
	}
	if asked.Load() != 0 {
		t.Errorf("the kubelet was asked %d times, with the token", asked.Load())
	}
}

// clusterCA is a certificate that has not signed the kubelet's.
func clusterCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	signed, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
}

// encoded are pods as the kubelet sends them.
func encoded(t *testing.T, pods ...corev1.Pod) lister {
	t.Helper()
	dir := t.TempDir()
	stop, err := podsapi.Serve(dir, func() []corev1.Pod { return pods })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	api, err := kubelet.NewPodsAPI(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api.Pods
}

// A pod that has not changed is not decoded again, and what was kept of a pod that is gone is forgotten.
func TestUnchangedPodsAreKept(t *testing.T) {
	all := recorded(t)
	r := &reducer{}
	read := func(pods ...corev1.Pod) {
		t.Helper()
		got, err := r.readList(t.Context(), encoded(t, pods...))
		if diff := cmp.Diff(newPods(pods, Policy{}), got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if len(r.known) != len(pods) {
			t.Errorf("%d pods are kept of %d", len(r.known), len(pods))
		}
	}
	read(all...)
	for _, kept := range r.known {
		if kept.pod != nil {
			kept.pod.Created = time.Time{}
		}
	}
	got, err := r.readList(t.Context(), encoded(t, all...))
	if err != nil || !got[0].Created.IsZero() {
		t.Errorf("decoded again: %v, %v", got, err)
	}
	r.known = nil
	read(all...)
	all[0].Annotations = map[string]string{AlignmentKey: "preferred"}
	read(all[0])
}

// What is kept of all pods is bounded: above it the source is unknown, and says so.
func TestTooManyRequests(t *testing.T) {
	pod := recorded(t)[0]
	pod.Spec.Containers = slices.Repeat(pod.Spec.Containers, 1<<14)
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	s, err := Open(Config{
		Choice: Choice{Kubelet}, Log: slog.New(slog.DiscardHandler), Readers: map[Source]Reader{
			Kubelet: func(context.Context) ([]corev1.Pod, error) { return slices.Repeat([]corev1.Pod{pod}, 8), nil },
		},
		Enforced: func(now Enforcement) {
			looks++
			if looks == 2 { // the same result again
				cancel()
			}
			if now.Enforced() || !now.TooLarge || !strings.Contains(now.Why, "too large") {
				t.Errorf("%+v", now)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Run(ctx)
	if ctx.Err() == nil {
		t.Error("nobody was told")
	}
	if _, err := s.Pods(t.Context()); err == nil {
		t.Error("the pods are known")
	}
}
