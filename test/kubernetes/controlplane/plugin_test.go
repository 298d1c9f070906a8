// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/kubelet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// TestKubectlPlugin asks three nodes by kubectl tandem: one with the DRA driver, one with both plugins, and
// one whose kubelet is away.
func TestKubectlPlugin(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		c := startCluster(t, o)
		c.apply(manifests)
		c.apply(templates)
		driver := c.join("a-driver", "oci-mi300x-derived", 1)
		c.reach("a-driver", c.serve())
		c.running("tandem-dra-a-driver-1")
		c.joinPlugins("b-plugins", "amd-mi250-16gcd-8nic")
		c.node("c-away")
		c.reach("c-away", &kubelet.Server{Address: "127.0.0.1", Port: 1}) // where nobody listens
		c.daemonPod("tandem-dra-c-away", "c-away")
		c.running("tandem-dra-c-away")
		c.create(templatePod("train-0", "tandem-pairs-1"))
		if !c.watch().wait(t.Context(), func(pods []*v1.Pod) bool {
			return slices.ContainsFunc(pods, func(p *v1.Pod) bool {
				return p.Name == "train-0" && p.Status.Phase == v1.PodRunning
			})
		}) {
			t.Fatal("train-0 does not run")
		}
		c.adopt("tandem-dra-a-driver-1", "tandem-rdma-b-plugins", "tandem-dra-c-away")
		c.checkPlugin(driver)
		driver.check()
	})
}

// adopt makes pods those of the DaemonSet of the manifests: no controller runs that would start them.
func (c *cluster) adopt(pods ...string) {
	c.t.Helper()
	ctx, options := c.t.Context(), metav1.PatchOptions{}
	set, err := c.AppsV1().DaemonSets(daemonNamespace).Get(ctx, "tandem-dra", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	status := map[string]any{"currentNumberScheduled": len(pods)}
	c.patch(map[string]any{"status": status}, func(patch []byte) error {
		_, err := c.AppsV1().DaemonSets(daemonNamespace).Patch(ctx, set.Name, types.MergePatchType, patch, options,
			"status")
		return err
	})
	owner := metav1.NewControllerRef(set, apps.SchemeGroupVersion.WithKind("DaemonSet"))
	for _, pod := range pods {
		metadata := map[string]any{"ownerReferences": []any{owner}}
		c.patch(map[string]any{"metadata": metadata}, func(patch []byte) error {
			_, err := c.CoreV1().Pods(daemonNamespace).Patch(ctx, pod, types.MergePatchType, patch, options)
			return err
		})
	}
}

// checkPlugin runs the plugin as a user with the rights that the documents name, and as one without.
func (c *cluster) checkPlugin(driver *worker) {
	c.t.Helper()
	operator := c.Kubeconfig(c.user("operator", rbac.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"},
	}, rbac.PolicyRule{
		APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"list"},
	}, rbac.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"get", "create"},
	}, rbac.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"get"},
	}))
	table := c.plugin(operator, 0, "status")
	c.t.Logf("kubectl tandem status\n%s", table)
	lines := strings.Split(table, "\n")
	for i, want := range []string{
		"2 of 3 nodes answer: GPUs free ", "", "NODE ", "a-driver   dra ", "b-plugins  device-plugin ",
		"c-away     ?  ",
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			c.t.Errorf("line %d of the status is not %q:\n%s", i+1, want, table)
		}
	}
	var document struct {
		Version int
		Nodes   []struct {
			Name, Error string
			Status      *struct {
				Totals struct{ GPUs, VFs struct{ All int } }
			}
		}
	}
	if err := json.Unmarshal([]byte(c.plugin(operator, 0, "status", "-o", "json")), &document); err != nil {
		c.t.Fatal(err)
	}
	if n := document.Nodes; len(n) != 3 || n[0].Status == nil || n[0].Status.Totals.GPUs.All != driver.GPUs() ||
		n[1].Status == nil || n[1].Status.Totals.VFs.All == 0 || n[2].Error == "" {
		c.t.Errorf("the document is %+v", document)
	}
	said := c.plugin(operator, 0, "explain", "train-0")
	c.t.Logf("kubectl tandem explain train-0\n%s", said)
	if !strings.Contains(said, "of "+namespace+"/train-0/") || !strings.Contains(said, "PIX") {
		c.t.Errorf("explain says %s", said)
	}
	found := c.plugin(operator, 3, "doctor", "a-driver")
	c.t.Logf("kubectl tandem doctor a-driver\n%s", found)
	if !strings.Contains(found, "This node is in DRA mode") {
		c.t.Errorf("doctor says %s", found)
	}
	if said := c.plugin(c.Kubeconfig(c.user("stranger")), 1, "status"); !strings.Contains(said, "forbidden") {
		c.t.Errorf("who has no rights is told %s", said)
	}
}

// plugin runs kubectl tandem, expects an exit code, and returns all that it says.
func (c *cluster) plugin(kubeconfig string, want int, args ...string) string {
	c.t.Helper()
	program, err := filepath.Abs(filepath.Join(*bin, "tandem"))
	if err != nil {
		c.t.Fatal(err)
	}
	link := filepath.Join(c.t.TempDir(), "kubectl-tandem")
	if err := os.Symlink(program, link); err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), link, append(args, "--timeout=1m")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	said, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != want {
		c.t.Errorf("kubectl tandem %v: exit code %d, want %d: %v\n%s", args, code, want, err, said)
	}
	return string(said)
}

// user makes a user with some rights, and returns a token.
func (c *cluster) user(name string, rules ...rbac.PolicyRule) (token string) {
	c.t.Helper()
	ctx, meta, options := c.t.Context(), metav1.ObjectMeta{Name: name}, metav1.CreateOptions{}
	_, err := c.CoreV1().ServiceAccounts(namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: meta}, options)
	if err == nil {
		_, err = c.RbacV1().ClusterRoles().Create(ctx, &rbac.ClusterRole{ObjectMeta: meta, Rules: rules}, options)
	}
	if err == nil {
		_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbac.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbac.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
		}, options)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	made, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authentication.TokenRequest{},
		options)
	if err != nil {
		c.t.Fatal(err)
	}
	return made.Status.Token
}

// joinPlugins adds a node with a recorded machine and both device plugins, which no kubelet has registered.
func (c *cluster) joinPlugins(name, machine string) {
	c.t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pair-")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { os.RemoveAll(dir) })
	library, err := filepath.Abs(filepath.Join(*bin, "nvml/libnvidia-ml.so.1"))
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := node.LayOut(dir, machine, 1, library)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(m.Kubelet(), "device-plugins"), 0o750); err != nil {
		c.t.Fatal(err)
	}
	started, err := m.StartPlugins(*bin)
	for _, service := range started {
		c.t.Cleanup(service.Stop)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := kubelet.Until(ctx, func() error { return offered(ctx, m) }); err != nil {
		c.t.Fatal(err)
	}
	c.node(name)
	c.reach(name, c.serve())
	pod := c.daemonPod("tandem-rdma-"+name, name, m.Folders()...)
	c.running(pod.Name)
}

// offered reports where the plugins of a machine do not offer GPUs and VFs yet.
func offered(ctx context.Context, m *node.Machine) error {
	var out, problems bytes.Buffer
	command := append([]string{"tandem", "status", "-o", "json"}, m.Folders()[2:]...)
	code := start(ctx, "", command, nil, &out, &problems)
	if !strings.Contains(out.String(), `"kind": "gpu"`) || !strings.Contains(out.String(), `"kind": "vf"`) {
		return fmt.Errorf("tandem status: exit code %d, %s%s", code, out.String(), problems.String())
	}
	return nil
}

// serve starts what the API server calls on a node. The program in its pods is the built tandem.
func (c *cluster) serve() *kubelet.Server {
	c.t.Helper()
	s, err := kubelet.Serve(map[string]any{"topologyManagerPolicy": "restricted"}, start)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.Close)
	return s
}

// start runs a program of Tandem's as a container runtime does.
func start(ctx context.Context, _ string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := exec.CommandContext(ctx, filepath.Join(*bin, args[0]), args[1:]...)
	var input []byte
	if stdin != nil {
		input, _ = io.ReadAll(stdin) // what has come is all that there is
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), stdout, stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return 126
	}
	return cmd.ProcessState.ExitCode()
}

// reach tells the API server where the kubelet of a node is.
func (c *cluster) reach(name string, at *kubelet.Server) {
	c.t.Helper()
	c.patch(map[string]any{"status": map[string]any{
		"addresses":       []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: at.Address}},
		"daemonEndpoints": v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: at.Port}},
	}}, func(patch []byte) error {
		_, err := c.CoreV1().Nodes().Patch(c.t.Context(), name, types.MergePatchType, patch,
			metav1.PatchOptions{}, "status")
		return err
	})
}

// running says of a daemon's pod that its container runs.
func (c *cluster) running(pod string) {
	c.t.Helper()
	c.patch(map[string]any{"status": map[string]any{
		"phase": v1.PodRunning, "containerStatuses": []v1.ContainerStatus{
			{Name: "main", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		},
	}}, func(patch []byte) error {
		_, err := c.CoreV1().Pods(daemonNamespace).Patch(c.t.Context(), pod, types.MergePatchType, patch,
			metav1.PatchOptions{}, "status")
		return err
	})
}

func (c *cluster) patch(what map[string]any, send func([]byte) error) {
	c.t.Helper()
	patch, err := json.Marshal(what)
	if err == nil {
		err = send(patch)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
