// SPDX-License-Identifier: Apache-2.0

// Package client makes client-go's clients for the stand-in for an API server. It is apart from the stand-in,
// whose other users do without the clients of all APIs.
package client

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// New returns a client whose requests a server makes, or a transport to a server.
func New(transport http.RoundTripper) kubernetes.Interface {
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://server", QPS: -1, Transport: transport,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	})
	if err != nil {
		panic(fmt.Sprintf("make a client: %v", err)) // the configuration is valid
	}
	return client
}
