// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	standin "github.com/tandem-k8s/tandem/test/podresources"
)

// recordedPods is an answer to GET /pods as a kubelet encodes it (encodePods in
// pkg/kubelet/server/server.go).
func recordedPods(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile("testdata/pods.json")
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func wantPods(t *testing.T, got []corev1.Pod) {
	t.Helper()
	if len(got) != 3 || got[0].Name != "train-0" ||
		got[0].Spec.Containers[0].Resources.Limits.Name("amd.com/gpu", "").Value() != 4 {
		t.Errorf("pods %v", got)
	}
}

// podManager serves the Pods API behind a limiter.
type podManager struct {
	podsv1alpha1.UnimplementedPodsServer
	limiter
	pods   []corev1.Pod
	broken bool
}

func (m *podManager) ListPods(
	context.Context, *podsv1alpha1.ListPodsRequest,
) (*podsv1alpha1.ListPodsResponse, error) {
	if err := m.limit(); err != nil {
		return nil, err
	}
	if m.broken {
		return &podsv1alpha1.ListPodsResponse{Pods: [][]byte{[]byte("no pod")}}, nil
	}
	answer := &podsv1alpha1.ListPodsResponse{}
	for _, pod := range m.pods {
		encoded, err := pod.Marshal()
		if err != nil {
			return nil, err
		}
		answer.Pods = append(answer.Pods, encoded)
	}
	return answer, nil
}

// servePods puts a Pods API at a socket below a new kubelet folder and returns the folder.
func servePods(t *testing.T, socket string, m *podManager) string {
	t.Helper()
	dir := shortDir(t)
	standin.Listen(t, filepath.Join(dir, socket), func(g *grpc.Server) { podsv1alpha1.RegisterPodsServer(g, m) })
	return dir
}

func askPodsAPI(t *testing.T, ctx context.Context, kubeletDir string) ([]corev1.Pod, error) {
	t.Helper()
	client, err := NewPodsAPI(kubeletDir)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	return collect(ctx, client)
}

// collect returns all pods, decoded.
func collect(ctx context.Context, client interface {
	Pods(ctx context.Context, each func(EncodedPod) error) error
}) (all []corev1.Pod, err error) {
	var pod corev1.Pod // used again, as by every reader
	err = client.Pods(ctx, func(e EncodedPod) error {
		err := e.Decode(&pod)
		all = append(all, *pod.DeepCopy())
		return err
	})
	return all, err
}

func TestPodsAPI(t *testing.T) {
	t.Parallel()
	var list corev1.PodList
	if err := json.Unmarshal(recordedPods(t), &list); err != nil {
		t.Fatal(err)
	}
	for _, socket := range podsSockets {
		pods := &podManager{pods: list.Items, limiter: limiter{2}}
		got, err := askPodsAPI(t, t.Context(), servePods(t, socket, pods))
		if err != nil {
			t.Fatal(err)
		}
		wantPods(t, got)
	}
	if _, err := askPodsAPI(t, t.Context(),
		servePods(t, podsSockets[0], &podManager{broken: true})); err == nil {
		t.Error("what is no pod was decoded")
	}
	if _, err := askPodsAPI(t, t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "1.37") {
		t.Errorf("a kubelet without Pods API: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	limited := &podManager{limiter: limiter{1 << 20}}
	if _, err := askPodsAPI(t, ctx, servePods(t, podsSockets[0], limited)); err == nil {
		t.Error("limited for ever, no error")
	}
}

// secured is a kubelet's HTTPS server with a token, which changes.
type secured struct {
	server *httptest.Server
	token  string
	answer []byte
	ca     string // file with its certificate, as /var/lib/kubelet/pki/kubelet.crt
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{token: "first", answer: recordedPods(t)}
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/pods":
			w.WriteHeader(http.StatusNotFound)
		case r.Header.Get("Authorization") != "Bearer "+s.token:
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("Content-Type", "application/json")
			if _, err := w.Write(s.answer); err != nil {
				t.Log(err) // the client reads no more than it allows
			}
		}
	}))
	t.Cleanup(s.server.Close)
	s.ca = filepath.Join(t.TempDir(), "kubelet.crt")
	write(t, s.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw}))
	return s
}

// endpoint returns the server's endpoint, with the first token.
func (s *secured) endpoint(t *testing.T) Endpoint {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, []byte("first\n"))
	return Endpoint{Address: s.server.Listener.Addr().String(), Name: "example.com", Token: token, CA: s.ca}
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestHTTPS(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	endpoint := s.endpoint(t)
	client := NewHTTPS(endpoint)
	defer client.Close()
	got, err := collect(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	wantPods(t, got)

	s.token = "second"
	if _, err := collect(t.Context(), client); err == nil || !strings.Contains(err.Error(), "nodes/pods") {
		t.Errorf("without the right: %v", err)
	}
	write(t, endpoint.Token, []byte("second"))
	if got, err = collect(t.Context(), client); err != nil {
		t.Errorf("with a renewed token: %v", err)
	}
	wantPods(t, got)

	for what, answer := range map[string]string{
		"an answer without end": strings.Repeat(" ", MaxPods+1),
		"a pod without end":     `{"items":[{"a":"` + strings.Repeat(`\"`, maxPod/2),
	} {
		s.answer = []byte(answer)
		if _, err := collect(t.Context(), client); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The token must reach nobody but the kubelet.
func TestHTTPSTrustsNobodyElse(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	s.server.Config.ErrorLog = nil
	nothing := filepath.Join(t.TempDir(), "empty.crt")
	write(t, nothing, nil)
	for name, spoil := range map[string]func(*Endpoint){
		"another node's certificate": func(e *Endpoint) { e.Name = "another-node" },
		"no CA file":                 func(e *Endpoint) { e.CA = nothing + "none" },
		"no certificate in it":       func(e *Endpoint) { e.CA = nothing },
		"no token":                   func(e *Endpoint) { e.Token += "none" },
	} {
		endpoint := s.endpoint(t)
		spoil(&endpoint)
		client := NewHTTPS(endpoint)
		if _, err := collect(t.Context(), client); err == nil {
			t.Errorf("%s: no error", name)
		}
		client.Close()
	}
}

// A kubelet that signs its own certificate, as kubeadm's do, is known by the one on the node's disk.
func TestHTTPSKnowsTheKubeletsOwnCertificate(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients reject it
	another := filepath.Join(t.TempDir(), "another.crt")
	write(t, another, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: selfSigned(t)}))
	endpoint := s.endpoint(t)
	endpoint.Name, endpoint.CA = "node-1", another
	key := filepath.Join(t.TempDir(), "kubelet.key")
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key")}))
	for name, tc := range map[string]struct{ own, want string }{
		"the one that it keeps":    {s.ca, ""},
		"another one":              {another, "start this pod again"},
		"none":                     {"", "serverTLSBootstrap"},
		"a file that is not there": {another + "none", "kubeletCertificate=/var/lib/kubelet/pki/kubelet.crt"},
		"a file without":           {endpoint.Token, "no certificate in it"},
		"a key instead":            {key, "no certificate in it"},
	} {
		endpoint.Certificate = tc.own
		client := NewHTTPS(endpoint)
		pods, err := collect(t.Context(), client)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want == "":
			wantPods(t, pods)
		case err == nil || !strings.Contains(err.Error(), tc.want):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		client.Close()
	}
}

// selfSigned is a certificate that nobody else has.
func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestHTTPSPort(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"10.0.0.7": "https://10.0.0.7:10250", "fd00::7": "https://[fd00::7]:10250",
		"10.0.0.7:10255": "https://10.0.0.7:10255",
	} {
		if got := NewHTTPS(Endpoint{Address: address}).url; got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
