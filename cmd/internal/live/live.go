// SPDX-License-Identifier: Apache-2.0

// Package live serves one read-only page over HTTP: the current picture of a node. The page refreshes itself;
// the server queries the node at most once a second, for any number of clients.
package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
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

// Loopback reports whether only this host reaches an address.
func Loopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Look returns the current node. Next to an error, it may return the known part of the node.
type Look func(context.Context) (*picture.Node, error)

// Explain returns, as text, the decisions for an owner of devices.
type Explain func(ctx context.Context, owner string) (string, error)

// Serve answers on a listener until ctx is done.
func Serve(ctx context.Context, listener net.Listener, title string, look Look, explain Explain) error {
	server := &http.Server{
		Handler:           Handler(title, look, explain, Loopback(listener.Addr())),
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

// Handler serves the page and the explanations. A server on loopback accepts only loopback's host names, as a
// foreign page in a browser on this host could point its own name at this server (DNS rebinding).
func Handler(title string, look Look, explain Explain, loopback bool) http.Handler {
	pages := &pages{title: title, look: look}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", pages)
	mux.Handle("GET /explain", &explanations{explain: explain})
	return harden(mux, loopback)
}

// pages answers with the page of the moment.
type pages struct {
	title string
	look  Look

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
