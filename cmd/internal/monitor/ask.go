// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Probe is a question about a daemon: whether it lives, or whether it is ready.
type Probe string

// The probes, and what is asked nothing.
const (
	NoProbe Probe = ""
	Alive   Probe = "healthz"
	Ready   Probe = "readyz"
)

// MarshalText prints the probe as the flag spells it.
func (p Probe) MarshalText() ([]byte, error) { return []byte(p), nil }

// UnmarshalText accepts healthz, readyz and the empty text.
func (p *Probe) UnmarshalText(text []byte) error {
	*p = Probe(text)
	if *p != NoProbe && *p != Alive && *p != Ready {
		return fmt.Errorf("want %s or %s", Alive, Ready)
	}
	return nil
}

// Ask asks the daemon that serves its probes at an address. It returns nil where all is well, else what is
// not.
func Ask(ctx context.Context, at Address, what Probe) error {
	network, address := at.split()
	if address == "" {
		return fmt.Errorf("ask for /%s: nothing is served, give --health-probe-bind-address too", what)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon/"+string(what), nil)
	if err != nil {
		return fmt.Errorf("ask for /%s: %w", what, err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("ask for /%s: %w", what, err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, maxHeader))
	if err != nil {
		return fmt.Errorf("read /%s: %w", what, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/%s: %s", what, strings.TrimSpace(string(said)))
	}
	return nil
}
