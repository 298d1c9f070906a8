// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/tandem-k8s/tandem/cmd/internal/printable"
)

// longestOwner is how long the names of a namespace, a pod and a container can be together, in bytes
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/names).
const longestOwner = 63 + 253 + 63 + 2

// explanations explains the decisions for an owner, one request at a time, so that any number of clients
// causes one query to the plugins at a time.
type explanations struct {
	explain Explain
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
	fmt.Fprint(w, printable.Lines(text))
}
