// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// looks returns a machine or an error, and counts its calls.
type looks struct {
	asked int
	err   error
	state picture.State
}

func (l *looks) look(context.Context) (*picture.Node, error) {
	l.asked++
	if l.err != nil {
		return nil, l.err
	}
	m, err := machines.Load("nv-h100-oci", 0)
	if err != nil {
		return nil, err
	}
	tree, err := topology.Read(m.FS())
	if err != nil {
		return nil, err
	}
	n := &picture.Node{Title: "node", Tree: tree}
	for d := range tree.Devices() {
		if d.Class.IsGPU() {
			device := picture.Device{ID: d.Address.String(), State: l.state}
			n.Cards = append(n.Cards, picture.Card{Name: "GPU", Address: d.Address, Devices: []picture.Device{device}})
		}
	}
	return n, nil
}

// told explains every owner except "team/away/main".
func told(_ context.Context, owner string) (string, error) {
	if owner == "team/away/main" {
		return "", errors.New("nobody answers")
	}
	return "1. " + owner + " <got> two pairs\n", nil
}

func ask(h http.Handler, method, url string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, url, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestRequests: only GET and HEAD of the page are allowed, on loopback only under loopback's names, and
// always with the headers. An explanation is plain text, whatever its content.
func TestRequests(t *testing.T) {
	l := &looks{}
	const explain, wanted = "http://localhost/explain", "want ?owner=NAMESPACE/POD/CONTAINER\n"
	for _, c := range []struct {
		method, url string
		loopback    bool
		code        int
		text        string // the whole plain text; "" for other pages
	}{
		{"GET", "http://localhost/", true, 200, ""},
		{"GET", "http://LocalHost:9000/", true, 200, ""},
		{"GET", "http://127.0.0.1:8080/", true, 200, ""},
		{"GET", "http://127.3.2.1/", true, 200, ""},
		{"GET", "http://[::1]:8080/", true, 200, ""},
		{"GET", "http://[::1]/", true, 200, ""},
		{"HEAD", "http://localhost:8080/", true, 200, ""},
		{"GET", "http://localhost/?at=once", true, 200, ""},
		{"POST", "http://localhost/", true, 405, ""},
		{"PUT", "http://localhost/", true, 405, ""},
		{"DELETE", "http://localhost/", true, 405, ""},
		{"OPTIONS", "http://localhost/", true, 405, ""},
		{"GET", "http://localhost/status", true, 404, ""},
		{"GET", "http://localhost//", true, 307, ""},
		{"GET", "http://evil.example/", true, 421, ""},
		{"GET", "http://evil.example:8080/", true, 421, ""},
		{"GET", "http://localhost.evil.example/", true, 421, ""},
		{"GET", "http://127.0.0.1.evil.example/", true, 421, ""},
		{"GET", "http://10.0.0.1/", true, 421, ""},
		{"POST", "http://evil.example/", true, 421, ""},
		{"GET", "http://node-7.example:8080/", false, 200, ""},
		{"POST", "http://node-7.example:8080/", false, 405, ""},

		{"GET", explain + "?owner=team%2Ftrain-0%2Fmain", true, 200, "1. team/train-0/main <got> two pairs\n"},
		{"GET", explain + "?owner=team/away/main", true, 503, "nobody answers\n"},
		{"GET", explain, true, 400, wanted},
		{"GET", explain + "?owner=" + strings.Repeat("x", 400), true, 400, wanted},
		{"POST", explain + "?owner=a/b/c", true, 405, "Method Not Allowed\n"},
		{"GET", "http://evil.example/explain?owner=a/b/c", true, 421, ""},
	} {
		w := ask((&page{title: "node", look: l.look, explain: told}).newHandler(c.loopback), c.method, c.url)
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d", c.method, c.url, w.Code, c.code)
		}
		has := strings.Contains(w.Body.String(), "<svg")
		if has != (c.code == 200 && c.method == "GET" && c.text == "") {
			t.Errorf("%s %s: a picture: %t", c.method, c.url, has)
		}
		kind := w.Header().Get("Content-Type")
		if c.text != "" && (w.Body.String() != c.text || kind != "text/plain; charset=utf-8") {
			t.Errorf("%s %s: %s %q, want %q", c.method, c.url, kind, w.Body, c.text)
		}
		for name, want := range headers {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", c.method, c.url, name, got, want)
			}
		}
	}
}

// The plugins are queried once a second for any number of clients, and an unchanged page is not sent again.
func TestOneQuestionForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &looks{state: picture.Free}
		h := (&page{title: "node", look: l.look, explain: told}).newHandler(true)
		tag := ask(h, "GET", "http://localhost/").Header().Get("ETag")
		for range 100 {
			ask(h, "GET", "http://localhost/")
		}
		if l.asked != 1 {
			t.Errorf("asked %d times at once", l.asked)
		}
		<-time.After(fresh)
		if w := ask(h, "GET", "http://localhost/", "If-None-Match", tag); w.Code != 304 || w.Body.Len() > 0 ||
			l.asked != 2 {
			t.Errorf("the same again: %d with %d bytes, asked %d times", w.Code, w.Body.Len(), l.asked)
		}
		l.state = picture.Allocated
		<-time.After(fresh)
		if w := ask(h, "GET", "http://localhost/", "If-None-Match", tag); w.Code != 200 ||
			!strings.Contains(w.Body.String(), ", allocated") {
			t.Errorf("changed: %d", w.Code)
		}
	})
}

// Without plugins the page shows the reason and continues to refresh.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &looks{err: errors.New("ask /run/<x>: nobody answers")}
		h := (&page{title: "node", look: l.look, explain: told}).newHandler(true)
		w := ask(h, "GET", "http://localhost/")
		body := w.Body.String()
		if w.Code != 503 || w.Header().Get("ETag") != "" || strings.Contains(body, "viewBox") {
			t.Errorf("away: %d, ETag %q", w.Code, w.Header().Get("ETag"))
		}
		for _, want := range []string{
			`Not up to date: ask /run/&lt;x&gt;: nobody answers</p>`, `data-every="2000"`, `<script>`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("no %q", want)
			}
		}
		l.err = nil
		<-time.After(fresh)
		if w := ask(h, "GET", "http://localhost/"); w.Code != 200 {
			t.Errorf("back: %d", w.Code)
		}
	})
}

func TestListen(t *testing.T) {
	for address, loopback := range map[string]bool{
		":0": true, "127.0.0.1:0": true, "localhost:0": true, "0.0.0.0:0": false,
	} {
		listener, err := ListenPage(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if reachesHostOnly(listener.Addr()) != loopback {
			t.Errorf("%s listens on %s", address, listener.Addr())
		}
		listener.Close()
	}
	for _, address := range []string{"", "8080", "a:b:c", "127.0.0.1:none"} {
		if listener, err := ListenPage(address); err == nil {
			t.Errorf("%q listens on %s", address, listener.Addr())
		}
	}
}

// The server ends on request, even with an open connection, and returns an error if it cannot continue.
func TestServe(t *testing.T) {
	listener, err := ListenPage(":0")
	ready(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	p := &page{title: "node", look: (&looks{}).look, explain: told}
	go func() { ended <- p.servePage(ctx, listener) }()
	client := &http.Client{Transport: &http.Transport{}}
	answer, err := client.Get("http://" + listener.Addr().String())
	ready(t, err)
	if body, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(body), "<svg") {
		t.Errorf("%v: %.80s", err, body)
	}
	answer.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	client.CloseIdleConnections()

	if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := p.servePage(t.Context(), listener); err == nil {
		t.Error("a closed listener is no error")
	}
}

// join takes part like a plugin with one resource, and returns when connected.
func join(t *testing.T, runDir, sys, resource string, kind device.Kind, devices ...string) (leave func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	node, err := coordination.New(coordination.Config{
		RunDir: runDir, SysRoot: sys, KubeletDir: t.TempDir(), Log: log,
	})
	ready(t, err)
	var announcement device.Announcement
	for _, id := range devices {
		address, err := topology.ParseAddress(id)
		ready(t, err)
		announcement.Devices = append(announcement.Devices, device.Device{ID: id, Address: address, Healthy: true})
	}
	node.Member(resource, kind).Publish(announcement)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	leave = func() {
		cancel()
		<-ended
	}
	for {
		answer, err := coordination.Status(t.Context(), runDir)
		for _, r := range answer.GetResources() {
			if r.GetName() == resource && r.GetConnected() && err == nil {
				return leave
			}
		}
		if t.Context().Err() != nil {
			t.Fatalf("%s does not join: %v", resource, err)
		}
	}
}

// The picture has the data of real plugins, on the cards of the machine, through a restart of both.
func TestLook(t *testing.T) {
	dir := kubelettest.Dir(t)
	sys := filepath.Join(dir, "sys")
	ready(t, os.CopyFS(sys, machines.Sys(t, "oci-mi300x-derived", 2)))
	v := &Viewer{
		Folders: Folders{RunDir: filepath.Join(dir, "run")}, From: machine.Source{SysfsRoot: sys},
		palette: picture.Palette{},
	}
	if n, err := v.readNode(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer") ||
		n == nil || len(n.Cards) != 16 || len(n.Notes) != 1 {
		t.Errorf("without plugins: %+v, %v", n, err)
	}
	leave := join(t, v.RunDir, sys, "amd.com/gpu", device.GPU, "0000:11:00.0", "0000:2f:00.0")
	look := func() *picture.Node {
		t.Helper()
		n, err := v.readNode(t.Context())
		ready(t, err)
		return n
	}
	expectState(t, look(), "0000:11:00.0", "amd.com/gpu", picture.Stranded)
	expectState(t, look(), "0000:46:00.0", "", picture.Unknown)
	if n := look(); !slices.Contains(n.Summary, "GPUs free 2/2") {
		t.Errorf("summary %q", n.Summary)
	}
	for owner, want := range map[string]string{
		"a/b": "container b of pod a: not among the last", "a/b/c": "container c of pod a/b: not among the last",
		"a": "want NAMESPACE/POD/CONTAINER",
	} {
		if _, err := v.explainOwner(t.Context(), owner); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("explain %s: %v, want %q", owner, err, want)
		}
	}
	alsoLeave := join(t, v.RunDir, sys, "nvidia.com/vf", device.VF, "0000:0c:00.1")
	expectState(t, look(), "0000:11:00.0", "amd.com/gpu", picture.Free)
	expectState(t, look(), "0000:2f:00.0", "amd.com/gpu", picture.Stranded)
	expectState(t, look(), "0000:0c:00.1", "nvidia.com/vf", picture.Free)
	expectState(t, look(), "0000:0c:00.2", "", picture.Unknown)
	// 6 GPUs, 15 VFs
	if n := look(); len(n.Cards) != 16 || len(n.Notes) != 2 ||
		!strings.HasPrefix(n.Notes[0], "Annotation tandem.dev/alignment of pods is not enforced") ||
		!strings.Contains(n.Notes[1], "there are 21") {
		t.Errorf("%d cards, notes %q", len(n.Cards), n.Notes)
	}
	alsoLeave()
	leave()
	if _, err := v.readNode(t.Context()); err == nil {
		t.Error("no error while both plugins are away")
	}
	defer join(t, v.RunDir, sys, "amd.com/gpu", device.GPU, "0000:11:00.0", "0000:2f:00.0")()
	n := look()
	expectState(t, n, "0000:11:00.0", "amd.com/gpu", picture.Stranded)
	// as last announced, because the plugin is away
	expectState(t, n, "0000:0c:00.1", "nvidia.com/vf", picture.Unhealthy)
	if len(n.Notes) != 3 || !strings.HasPrefix(n.Notes[1], "The plugin of nvidia.com/vf is away") {
		t.Errorf("notes %q", n.Notes)
	}
}

func expectState(t *testing.T, n *picture.Node, id, resource string, state picture.State) {
	t.Helper()
	for _, c := range n.Cards {
		for _, d := range c.Devices {
			if d.ID == id {
				if d.State != state || d.Resource != resource {
					t.Errorf("%s is %q %q, want %q %q", id, d.Resource, d.State, resource, state)
				}
				return
			}
		}
	}
	t.Errorf("%s is not drawn", id)
}
