// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

const (
	renew  = 2 * time.Second // refresh interval of a visible page
	fresh  = time.Second     // how long an answer is good for everyone
	goBack = 2 * time.Second // grace period for requests when the server ends
)

// ListenPage opens a port. Without a host the address is 127.0.0.1, so that the network has access only on
// request.
func ListenPage(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: want host:port, or :port on this host: %w", address, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// reachesHostOnly reports whether only this host reaches an address.
func reachesHostOnly(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// page answers with the page of a node at the moment, and explains owners of devices one at a time, so that
// any number of clients causes one query to the plugins at a time.
type page struct {
	title string
	// look returns the current node. Next to an error, it may return the known part of the node.
	look func(context.Context) (*picture.Node, error)
	// explain returns, as text, the decisions for an owner of devices.
	explain    func(ctx context.Context, owner string) (string, error)
	explaining sync.Mutex

	mu    sync.Mutex
	asked time.Time
	text  []byte
	tag   string
	code  int
}

// servePage answers on a listener until ctx is done.
func (p *page) servePage(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           p.newHandler(reachesHostOnly(listener.Addr())),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    1 << 14,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), goBack)
	defer cancel()
	err := server.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-ended
	return err
}

// newHandler serves the page and the explanations. A server on loopback accepts only loopback's host names,
// as a foreign page in a browser on this host could point its own name at this server (DNS rebinding).
func (p *page) newHandler(loopback bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.answerPage)
	mux.HandleFunc("GET /explain", p.answerExplain)
	return hardenHandler(mux, loopback)
}

func (p *page) answerPage(w http.ResponseWriter, r *http.Request) {
	text, tag, code := p.currentPage(r.Context())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache") // always revalidate
	if code != http.StatusOK {
		w.WriteHeader(code)
		_, _ = w.Write(text) // the client may be gone
		return
	}
	w.Header().Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// currentPage returns the page, shared by all requests within a second. Concurrent requests wait for the
// first one's query.
func (p *page) currentPage(ctx context.Context) (text []byte, tag string, code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) < fresh {
		return p.text, p.tag, p.code
	}
	view := picture.Page{Title: p.title, Renew: renew}
	p.code = http.StatusOK
	node, err := p.look(context.WithoutCancel(ctx)) // the answer serves other requests too
	if err != nil {
		view.Problem, p.code = "Not up to date: "+err.Error(), http.StatusServiceUnavailable
	}
	view.Node = node
	p.text, err = view.HTML()
	if err != nil {
		p.text, p.code = []byte(err.Error()), http.StatusInternalServerError
	}
	p.tag, p.asked = fmt.Sprintf(`"%x"`, sha256.Sum256(p.text)), time.Now()
	return p.text, p.tag, p.code
}

// headers forbid framing, MIME sniffing, reads by other sites, and loading of other resources.
var headers = map[string]string{
	"Content-Security-Policy":      picture.Policy + "; frame-ancestors 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
}

func hardenHandler(next http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if loopback && !isLoopback(r.Host) {
			http.Error(w, fmt.Sprintf("this is for localhost, not for %q", r.Host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a Host header names this host itself, with any port (tunnels use their own).
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// longestOwner is how long the names of a namespace, a pod and a container can be together, in bytes
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/names).
const longestOwner = 63 + 253 + 63 + 2

func (p *page) answerExplain(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	owner := r.URL.Query().Get("owner")
	if owner == "" || len(owner) > longestOwner {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, "want ?owner=NAMESPACE/POD/CONTAINER")
		return
	}
	p.explaining.Lock()
	defer p.explaining.Unlock()
	text, err := p.explain(r.Context(), owner)
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error() + "\n"
	}
	fmt.Fprint(w, cli.PrintableLines(text))
}

// AnnouncePage shows the address of the page.
func AnnouncePage(stdout, stderr io.Writer, listener net.Listener) {
	fmt.Fprintf(stdout, "http://%s/ shows this node until Ctrl-C\n", listener.Addr())
	if !reachesHostOnly(listener.Addr()) {
		fmt.Fprintf(stderr, "WARNING: %s is not a loopback address: whoever reaches it over the "+
			"network reads the names of this node's pods and its hardware, unencrypted and without a password; "+
			"--serve :PORT serves this host alone\n", listener.Addr())
	}
}

// Viewer shows a node with its plugins as a live page: one read-only page over HTTP, which refreshes itself.
// The server queries the node at most once a second, for any number of clients. It rereads the machine only
// if the plugins' devices change, because some reads reach the devices themselves.
type Viewer struct {
	Folders
	From  machine.Source
	Title string // of the page

	palette picture.Palette
	node    *machine.Node
	of      string // the devices of the time when node was read
}

// Serve serves the page until ctx is done.
func (v *Viewer) Serve(ctx context.Context, listener net.Listener) error {
	v.palette = picture.Palette{}
	return (&page{title: v.Title, look: v.readNode, explain: v.explainOwner}).servePage(ctx, listener)
}

// readNode queries the plugins. Without an answer the picture shows sysfs alone.
func (v *Viewer) readNode(ctx context.Context) (*picture.Node, error) {
	s, away := v.readStatus(ctx, v.From.SysfsRoot)
	if devices := s.ListDevices(); v.node == nil || v.of != devices {
		node, err := machine.Read(&v.From)
		if err != nil {
			return nil, errors.Join(away, err)
		}
		v.node, v.of = node, devices
	}
	drawn := machine.NewMatrix(v.node, false).Picture(v.Title, v.node.Tree)
	if away != nil {
		drawn.AddNote("This is what the machine has, by sysfs alone; who has its devices is not known.")
		return drawn, away
	}
	drawn.Palette = v.palette
	s.fillPicture(drawn)
	pods, err := RejectedPods(ctx, v.KubeletDir)
	if err != nil && !errors.Is(err, kubelet.ErrNoPodsAPI) {
		drawn.AddNote("Rejected pods are unknown: %v.", err)
	}
	for _, pod := range pods {
		drawn.Rejected = append(drawn.Rejected, pod.Namespace+"/"+pod.Name+"/")
	}
	return drawn, nil
}

// explainOwner queries the decisions of the plugins for an owner, named as in the picture. A pod that the
// kubelet has rejected has no container in its name, and is compared with the node.
func (v *Viewer) explainOwner(ctx context.Context, owner string) (string, error) {
	parts := strings.Split(owner, "/")
	if len(parts) == 2 { // the namespace is unknown
		parts = append([]string{""}, parts...)
	}
	if len(parts) != 3 {
		return "", fmt.Errorf("explain %q: want NAMESPACE/POD/CONTAINER", owner)
	}
	known, err := v.Folders.Explain(ctx, PodQuestion{Namespace: parts[0], Pod: parts[1], Container: parts[2]})
	if err != nil {
		return "", err
	}
	return v.formatText(ctx, known, true).String(), nil
}

// fillPicture puts what the plugins know into the picture of the machine. What no plugin offers stays as the
// machine has it.
func (s Status) fillPicture(drawn *picture.Node) {
	drawn.Summary = s.summaryParts()
	if s.Kubelet.IsDown() {
		drawn.AddNote("The kubelet is down: %s. Owners are those known last.", s.Kubelet.Why)
	}
	if text := s.Alignment.WhyUnenforced(); text != "" {
		drawn.AddNote("%s%s.", strings.ToUpper(text[:1]), text[1:])
	}
	for _, d := range s.Degraded {
		drawn.AddNote("Degraded: %s.", d)
	}
	for _, text := range s.ListUnsound() {
		drawn.AddNote("%s.", text)
	}
	for _, r := range s.Resources {
		if !r.Connected {
			drawn.AddNote("The plugin of %s is away: its devices are shown as they were known last.", r.Name)
		}
		if r.Registered != nil && !*r.Registered {
			drawn.AddNote("The kubelet does not use the devices of %s.", r.Name)
		}
	}
	s.placeDevices(drawn)
}

// placeDevices puts the offered devices on the cards of a picture, in the place of the machine's own.
func (s Status) placeDevices(drawn *picture.Node) {
	offered := map[topology.Address][]picture.Device{}
	kinds := map[topology.Address]model.Kind{}
	for _, r := range s.Resources {
		for _, d := range r.Devices {
			address, err := topology.ParseAddress(d.Address)
			if err != nil {
				continue // of a plugin that sent none
			}
			offered[address] = append(offered[address], picture.Device{
				ID: d.ID, Address: address, Resource: r.Name,
				Detail: strings.Join(slices.DeleteFunc([]string{
					picture.ListNames(drawn.Tree, address), d.Health, d.Reason,
				}, func(s string) bool { return s == "" }), ", "),
				State: d.State, Owner: d.Owner,
			})
			if r.Kind == string(device.VF) {
				kinds[address] = model.VF
			}
		}
	}
	rest := 0
	for i := range drawn.Cards {
		card := &drawn.Cards[i]
		card.Devices = slices.DeleteFunc(card.Devices, func(d picture.Device) bool {
			return len(offered[d.Address]) > 0
		})
		rest += len(card.Devices)
	}
	if rest > 0 {
		drawn.AddNote("Devices that no plugin offers have no state; there are %d.", rest)
	}
	for _, address := range slices.SortedFunc(maps.Keys(offered), topology.Address.Compare) {
		card := drawn.CardOf(kinds[address], address)
		card.Devices = append(card.Devices, offered[address]...)
	}
	for _, card := range drawn.Cards {
		slices.SortStableFunc(card.Devices, func(a, b picture.Device) int { return a.Address.Compare(b.Address) })
	}
}
