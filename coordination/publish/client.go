// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// fieldManager is the field manager of all writes, and the value of managedBy.
const fieldManager = "tandem"

// managedBy is the label with the writer of an object.
const managedBy = "app.kubernetes.io/managed-by"

// reachTimeout is how long a connection to the API server may take.
const reachTimeout = 300 * time.Millisecond

// owner has the relevant fields of the node's Kubernetes object, which owns the published objects.
type owner struct {
	name    string
	uid     types.UID
	kubelet string // the kubelet's version, "v1.37.1"
}

// meta returns the metadata of an object that the Node owns, so that it is deleted with the Node.
func (n owner) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: n.name, Labels: map[string]string{managedBy: fieldManager},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.name, UID: n.uid}},
	}
}

// client reads and writes the objects of one node.
type client struct {
	rest *rest.RESTClient
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	host string // with the port
	name string // of the node

	mu   sync.Mutex
	node *owner // nil until the next request
}

// newClient returns a client of an API server, nil for the API server of this process's pod. The client
// connects on first use.
func newClient(server *rest.Config, node string) (*client, error) {
	if node == "" {
		return nil, errors.New("the node's name is not known; set --node-name, or NODE_NAME from spec.nodeName")
	}
	server, err := intent.ServerConfig(server)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(server)
	config.QPS = -1 // the publisher limits the rate
	made, err := intent.NewClient(config, &corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the address of the API server: %w", err)
	}
	host := url.Host
	if url.Port() == "" {
		host = net.JoinHostPort(url.Hostname(), map[string]string{"http": "80", "https": "443"}[url.Scheme])
	}
	dial := (&net.Dialer{}).DialContext
	if config.Dial != nil {
		dial = config.Dial
	}
	return &client{rest: made, dial: dial, host: host, name: node}, nil
}

// reach opens a connection to the API server and closes it.
func (c *client) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := c.dial(ctx, "tcp", c.host)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	return conn.Close()
}

// forget makes the client request the Node again.
func (c *client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = nil
}

// getNode asks for the node's object, once.
func (c *client) getNode(ctx context.Context) (owner, error) {
	c.mu.Lock()
	known := c.node
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var object corev1.Node
	if err := c.closeAfter(c.rest.Get().Resource("nodes").Name(c.name).Do(ctx).Into(&object)); err != nil {
		return owner{}, fmt.Errorf("get node %s: %w", c.name, err)
	}
	node := &owner{name: c.name, uid: object.UID, kubelet: object.Status.NodeInfo.KubeletVersion}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = node
	return *node, nil
}

// getObject requests an object; nil if it does not exist.
func (c *client) getObject(ctx context.Context, o object) ([]byte, error) {
	body, err := c.rest.Get().AbsPath(o.path).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if c.closeAfter(err) != nil {
		return nil, fmt.Errorf("get %s: %w", o, err)
	}
	return body, nil
}

// applyObject applies an object (server-side apply). Without force it returns an error if another manager
// owns one of the fields.
func (c *client) applyObject(ctx context.Context, o object, force bool) error {
	body, err := json.Marshal(o.body)
	if err != nil {
		return fmt.Errorf("write %s: %w", o, err)
	}
	err = c.rest.Patch(types.ApplyPatchType).AbsPath(o.path).Param("fieldManager", fieldManager).
		Param("force", fmt.Sprint(force)).Body(body).Do(ctx).Error()
	if c.closeAfter(err) != nil {
		return fmt.Errorf("apply %s: %w", o, err)
	}
	return nil
}

// closeAfter closes idle connections after a connection error: the next API server may be a different one.
func (c *client) closeAfter(err error) error {
	if answered := apierrors.APIStatus(nil); err != nil && !errors.As(err, &answered) {
		utilnet.CloseIdleConnectionsFor(c.rest.Client.Transport)
	}
	return err
}
