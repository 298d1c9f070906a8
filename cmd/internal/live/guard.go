// SPDX-License-Identifier: Apache-2.0

package live

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
)

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
