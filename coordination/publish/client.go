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

// FieldManager is the field manager of all writes, and the value of ManagedBy.
const FieldManager = "tandem"

// ManagedBy is the label with the writer of an object.
const ManagedBy = "app.kubernetes.io/managed-by"

// reachTimeout is how long a connection to the API server may take.
const reachTimeout = 300 * time.Millisecond

// Node has the relevant fields of the node's Kubernetes object.
type Node struct {
	Name    string
	UID     types.UID
	Kubelet string // the kubelet's version, "v1.37.1"
}

// Meta returns the metadata of an object that the Node owns, so that it is deleted with the Node.
func (n Node) Meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: n.Name, Labels: map[string]string{ManagedBy: FieldManager},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}},
	}
}

// Client reads and writes the objects of one node.
type Client struct {
	rest *rest.RESTClient
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	host string // with the port
	name string // of the node

	mu   sync.Mutex
	node *Node // nil until the next request
}

// NewClient returns a client. It connects on first use.
func NewClient(config *rest.Config, node string) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the publisher limits the rate
	client, err := intent.NewClient(config, &corev1.Node{})
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
	return &Client{rest: client, dial: dial, host: host, name: node}, nil
}

// Reach opens a connection to the API server and closes it.
func (c *Client) Reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := c.dial(ctx, "tcp", c.host)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	return conn.Close()
}

// Forget makes the client request the Node again.
func (c *Client) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = nil
}

// Node asks for the node's object, once.
func (c *Client) Node(ctx context.Context) (Node, error) {
	c.mu.Lock()
	known := c.node
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var object corev1.Node
	if err := c.closeAfter(c.rest.Get().Resource("nodes").Name(c.name).Do(ctx).Into(&object)); err != nil {
		return Node{}, fmt.Errorf("get node %s: %w", c.name, err)
	}
	node := &Node{Name: c.name, UID: object.UID, Kubelet: object.Status.NodeInfo.KubeletVersion}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = node
	return *node, nil
}

// getObject requests an object; nil if it does not exist.
func (c *Client) getObject(ctx context.Context, o Object) ([]byte, error) {
	body, err := c.rest.Get().AbsPath(o.path()).Do(ctx).Raw()
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
func (c *Client) applyObject(ctx context.Context, o Object, force bool) error {
	body, err := json.Marshal(o.Body)
	if err != nil {
		return fmt.Errorf("write %s: %w", o, err)
	}
	err = c.rest.Patch(types.ApplyPatchType).AbsPath(o.path()).Param("fieldManager", FieldManager).
		Param("force", fmt.Sprint(force)).Body(body).Do(ctx).Error()
	if c.closeAfter(err) != nil {
		return fmt.Errorf("apply %s: %w", o, err)
	}
	return nil
}

// closeAfter closes idle connections after a connection error: the next API server may be a different one.
func (c *Client) closeAfter(err error) error {
	if answered := apierrors.APIStatus(nil); err != nil && !errors.As(err, &answered) {
		utilnet.CloseIdleConnectionsFor(c.rest.Client.Transport)
	}
	return err
}
