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

// Probe is a probe of a daemon: liveness or readiness.
type Probe string

// Probes; NoProbe is the zero value.
const (
	NoProbe Probe = ""
	Alive   Probe = "healthz"
	Ready   Probe = "readyz"
)

// MarshalText returns the probe as the flag spells the probe.
func (p Probe) MarshalText() ([]byte, error) { return []byte(p), nil }

// UnmarshalText accepts healthz, readyz and the empty text.
func (p *Probe) UnmarshalText(text []byte) error {
	*p = Probe(text)
	if *p != NoProbe && *p != Alive && *p != Ready {
		return fmt.Errorf("want %s or %s", Alive, Ready)
	}
	return nil
}

// Ask queries the probe of a daemon that serves probes at an address. It returns nil if the daemon passes,
// else the daemon's reasons.
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
