// SPDX-License-Identifier: Apache-2.0

// Package live serves one page over HTTP: the picture of a node as it is now. Nothing can be changed through
// it. The page asks for itself again, and the server asks for the node at most once a second, however many
// look.
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
	renew  = 2 * time.Second // how often a page that is looked at asks for itself
	fresh  = time.Second     // how long an answer is good for everyone
	goBack = 2 * time.Second // that requests have to end when the server does
)

// Listen opens a port. Without a host the address is 127.0.0.1: what nobody asked for is not open to the
// network.
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

// Look tells what the node is like now. With an error it may tell what is known in spite of it.
type Look func(context.Context) (*picture.Node, error)

// Explain tells people what was decided for an owner of devices.
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

// Handler answers with the page, and with what was decided for an owner. What listens on loopback answers to
// loopback's names only: a foreign page in a browser on this host could have its own name point here (DNS
// rebinding).
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
	w.Header().Set("Cache-Control", "no-cache") // ask whether it is still the same
	if code != http.StatusOK {
		w.WriteHeader(code)
		_, _ = w.Write(page) // who asked may be gone
		return
	}
	w.Header().Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(page))
}

// now is the page, one for all who ask within a second. Whoever waits for another's question does so no
// longer than it takes.
func (p *pages) now(ctx context.Context) (page []byte, tag string, code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) < fresh {
		return p.page, p.tag, p.code
	}
	view := picture.Page{Title: p.title, Renew: renew}
	p.code = http.StatusOK
	node, err := p.look(context.WithoutCancel(ctx)) // the answer is for others too
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
