// SPDX-License-Identifier: Apache-2.0

package viewer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
)

const (
	renew  = 2 * time.Second // refresh interval of a visible page
	fresh  = time.Second     // how long an answer is good for everyone
	goBack = 2 * time.Second // grace period for requests when the server ends
)

// Listen opens a port. Without a host the address is 127.0.0.1, so that the network has access only on
// request.
func Listen(address string) (net.Listener, error) {
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

// nodeReader returns the current node. Next to an error, it may return the known part of the node.
type nodeReader func(context.Context) (*picture.Node, error)

// explainer returns, as text, the decisions for an owner of devices.
type explainer func(ctx context.Context, owner string) (string, error)

// servePage answers on a listener until ctx is done.
func servePage(
	ctx context.Context, listener net.Listener, title string, look nodeReader, explain explainer,
) error {
	server := &http.Server{
		Handler:           handler(title, look, explain, reachesHostOnly(listener.Addr())),
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

// handler serves the page and the explanations. A server on loopback accepts only loopback's host names, as a
// foreign page in a browser on this host could point its own name at this server (DNS rebinding).
func handler(title string, look nodeReader, explain explainer, loopback bool) http.Handler {
	pages := &pages{title: title, look: look}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", pages)
	mux.Handle("GET /explain", &explanations{explain: explain})
	return harden(mux, loopback)
}

// pages answers with the page of the moment.
type pages struct {
	title string
	look  nodeReader

	mu    sync.Mutex
	asked time.Time
	page  []byte
	tag   string
	code  int
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, tag, code := p.now(r.Context())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache") // always revalidate
	if code != http.StatusOK {
		w.WriteHeader(code)
		_, _ = w.Write(page) // the client may be gone
		return
	}
	w.Header().Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(page))
}

// now returns the page, shared by all requests within a second. Concurrent requests wait for the first one's
// query.
func (p *pages) now(ctx context.Context) (page []byte, tag string, code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) < fresh {
		return p.page, p.tag, p.code
	}
	view := picture.Page{Title: p.title, Renew: renew}
	p.code = http.StatusOK
	node, err := p.look(context.WithoutCancel(ctx)) // the answer serves other requests too
	if err != nil {
		view.Problem, p.code = "Not up to date: "+err.Error(), http.StatusServiceUnavailable
	}
	view.Node = node
	if p.page, err = view.HTML(); err != nil {
		p.page, p.code = []byte(err.Error()), http.StatusInternalServerError
	}
	p.tag, p.asked = tagOf(p.page), time.Now()
	return p.page, p.tag, p.code
}

// headers forbid framing, MIME sniffing, reads by other sites, and loading of other resources.
var headers = map[string]string{
	"Content-Security-Policy":      picture.Policy + "; frame-ancestors 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
}

func harden(next http.Handler, loopback bool) http.Handler {
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

func tagOf(page []byte) string { return fmt.Sprintf(`"%x"`, sha256.Sum256(page)) }

// longestOwner is how long the names of a namespace, a pod and a container can be together, in bytes
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/names).
const longestOwner = 63 + 253 + 63 + 2

// explanations explains the decisions for an owner, one request at a time, so that any number of clients
// causes one query to the plugins at a time.
type explanations struct {
	explain explainer
	mu      sync.Mutex
}

func (e *explanations) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	owner := r.URL.Query().Get("owner")
	if owner == "" || len(owner) > longestOwner {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, "want ?owner=NAMESPACE/POD/CONTAINER")
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	text, err := e.explain(r.Context(), owner)
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error() + "\n"
	}
	fmt.Fprint(w, cli.PrintableLines(text))
}
