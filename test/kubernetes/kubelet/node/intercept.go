// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"path"
	"strings"
	"sync"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Call is a call of the kubelet to a device plugin during an admission.
type Call struct {
	Method string // "GetPreferredAllocation", "Allocate"
	Socket string // the plugin's, without its folder

	Request, Reply any   // messages of the device plugin API; the reply is empty before the call
	Err            error // the plugin's, after the call
}

// Methods that can be intercepted.
const (
	GetPreferredAllocation = "GetPreferredAllocation"
	Allocate               = "Allocate"
)

// Intercept calls before and after around every later call of the kubelet to a plugin. The kubelet waits for
// both functions.
func (n *Node) Intercept(before, after func(Call)) {
	interceptors.mu.Lock()
	defer interceptors.mu.Unlock()
	interceptors.byFolder[n.dir] = interceptor{before, after}
}

type interceptor struct{ before, after func(Call) }

// interceptors are the interceptors of all nodes of this process, by the folder of the node.
var interceptors = struct {
	mu       sync.Mutex
	byFolder map[string]interceptor
}{byFolder: map[string]interceptor{}}

// globalDialOptions are those of every client of this process. The kubelet has no door for an interceptor of
// its calls to plugins.
//
//go:linkname globalDialOptions google.golang.org/grpc.globalDialOptions
var globalDialOptions []grpc.DialOption

func init() {
	globalDialOptions = append(globalDialOptions, grpc.WithChainUnaryInterceptor(intercept))
}

func intercept(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	i := interceptorOf(conn.Target())
	call := Call{
		Method: path.Base(method), Socket: path.Base(conn.Target()), Request: request, Reply: reply,
	}
	if i == nil || path.Dir(method) != "/"+v1beta1.DevicePlugin_ServiceDesc.ServiceName ||
		call.Method != GetPreferredAllocation && call.Method != Allocate {
		return invoke(ctx, method, request, reply, conn, options...)
	}
	i.before(call)
	call.Err = invoke(ctx, method, request, reply, conn, options...)
	i.after(call)
	return call.Err
}

// interceptorOf returns the interceptor of the node with a socket, or nil.
func interceptorOf(socket string) *interceptor {
	interceptors.mu.Lock()
	defer interceptors.mu.Unlock()
	for folder, i := range interceptors.byFolder {
		if strings.HasPrefix(socket, folder+"/") {
			return &i
		}
	}
	return nil
}
