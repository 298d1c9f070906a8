// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/cluster"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/golden"
)

// plugin runs kubectl tandem.
func plugin(kubeconfig string, args ...string) (code int, stdout, stderr string) {
	var out, problems bytes.Buffer
	root, args := commandOf(append([]string{"/usr/local/bin/" + asPlugin, "--kubeconfig", kubeconfig}, args...))
	code = cli.Execute(root, args, &out, &problems)
	return code, out.String(), problems.String()
}

// theCluster has a node with two plugins, one with the DRA driver, one without an answer, one whose daemon
// does not run, and pods.
func theCluster(t *testing.T) *podServer {
	s := newPodServer(t)
	root := s.root
	used := onMachine(t, "oci-mi300x-derived", 1)
	gpus, vfs := used.GetResources()[0].GetDevices(), used.GetResources()[1].GetDevices()
	give("team/train-0/worker", gpus[0], gpus[1], vfs[0], vfs[2]) // one pair is on two switches
	serveAs(t, filepath.Join(root, "run"), recordedNode{answer: used})
	serveKubelet(t, filepath.Join(root, "kubelet"), used, []string{"amd.com/gpu", "tandem.dev/rdma_vf"})
	runDir, kubeletDir := filepath.Join(root, "run"), filepath.Join(root, "kubelet")
	flags := []string{"--run-dir=" + runDir, "--kubelet-dir=" + kubeletDir}
	s.add("kube-system/tandem-gpu-b", "tandem-gpu", "gpu-1", itself(t), flags...)
	s.add("kube-system/tandem-rdma-a", "tandem-rdma", "gpu-1", itself(t), flags...)
	serveAs(t, filepath.Join(root, "explained"), plugins{})
	s.add("kube-system/tandem-dra-a", "tandem-dra", "gpu-0", itself(t),
		"--run-dir="+filepath.Join(root, "explained"),
		"--kubelet-dir="+filepath.Join(root, "none"), "--node-name=$(NODE_NAME)")
	s.add("kube-system/tandem-dra-b", "tandem-dra", "gpu-2", itself(t),
		"--run-dir="+filepath.Join(root, "nowhere"))
	s.add("kube-system/tandem-dra-c", "tandem-dra", "gpu-3", itself(t))
	s.change("kube-system/tandem-dra-c", func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"},
		}
	})
	s.add("team/train-0", "train", "gpu-0", nil)
	s.add("team/train-1", "train", "", nil)
	return s
}

// TestClusterStatus: every node has its line, including those without an answer.
func TestClusterStatus(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		s := theCluster(t)
		s.oldRoutes = old
		kubeconfig := s.start()
		code, stdout, stderr := plugin(kubeconfig, "status", "--timeout=1m")
		if code != cli.ExitOK || stderr != "" {
			t.Fatalf("exit code %d, %q", code, stderr)
		}
		golden.Check(t, "testdata/cluster-status.txt", strings.ReplaceAll(stdout, s.root, "ROOT"))
		want := map[bool]string{false: "websocket", true: "SPDY/3.1"}[old]
		if slices.ContainsFunc(s.spoke, func(p string) bool { return p != want }) || len(s.spoke) == 0 {
			t.Errorf("programs were started over %v, want %s", s.spoke, want)
		}
	}
}

// TestClusterStatusOfNone: a cluster in which no node answers is an error, after the lines with the reasons.
func TestClusterStatusOfNone(t *testing.T) {
	t.Parallel()
	s := newPodServer(t)
	runDir := filepath.Join(s.root, "none")
	s.add("kube-system/tandem-gpu-a", "tandem-gpu", "gpu-1", itself(t), "--run-dir="+runDir)
	code, stdout, stderr := plugin(s.start(), "status")
	if code != cli.ExitError || !strings.Contains(stdout, "0 of 1 nodes answer") ||
		!strings.Contains(stderr, "no node answers") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

func TestClusterStatusJSON(t *testing.T) {
	t.Parallel()
	s := theCluster(t)
	kubeconfig := s.start()
	var status cluster.Status
	code, stdout, stderr := plugin(kubeconfig, "status", "-o", "json", "--tandem-namespace", "kube-system")
	if err := json.Unmarshal([]byte(stdout), &status); err != nil || code != cli.ExitOK {
		t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	if len(status.Nodes) != 4 || status.Nodes[1].Daemon != "kube-system/tandem-gpu-b" ||
		len(status.Nodes[1].Status.Resources[0].Devices) != 8 {
		t.Errorf("JSON has %+v", status)
	}
}

// TestClusterExplain finds the node of a pod, by default in the namespace of the context.
func TestClusterExplain(t *testing.T) {
	t.Parallel()
	kubeconfig := theCluster(t).start()
	for _, args := range [][]string{
		{"train-0"}, {"team/train-0"}, {"-n", "team", "train-0"}, {"gone", "--node", "gpu-0"},
	} {
		code, stdout, stderr := plugin(kubeconfig, append([]string{"explain"}, args...)...)
		pod := strings.TrimPrefix(args[len(args)-1], "team/")
		if args[0] == "gone" {
			pod = "gone"
		}
		if code != cli.ExitOK || !strings.Contains(stdout, "amd.com/gpu of team/"+pod+"/worker") {
			t.Errorf("%v: exit code %d, %q%q", args, code, stdout, stderr)
		}
	}
	for args, want := range map[string]string{
		"train-1":               "it has none yet",
		"train-2":               "find pod team/train-2: it is not there (did you mean train-0 or train-1?)",
		"train-0 --node gpu-9":  "no DaemonSet of namespace kube-system has a pod on node gpu-9 that is labelled",
		"train-0 --node gpu-00": " (did you mean gpu-0?)",
		"train-0 --node gpu-2":  "kube-system/tandem-dra-b: tandem explain: ask ",
	} {
		code, stdout, stderr := plugin(kubeconfig, append([]string{"explain"}, strings.Fields(args)...)...)
		if code != cli.ExitError || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q%q; want %q", args, code, stdout, stderr, want)
		}
	}
}

// noClaims answers as a DRA driver without claims.
type noClaims struct{ plugins }

func (noClaims) Explain(context.Context, *api.ExplainRequest) (*api.ExplainResponse, error) {
	return nil, errors.New("explain pod team/done: no claim of the pod is prepared on this node now")
}

// TestClusterExplainsEndedPod: the claims of an ended pod are released; the answer does not deny that the pod
// had some.
func TestClusterExplainsEndedPod(t *testing.T) {
	t.Parallel()
	s := newPodServer(t)
	serveAs(t, filepath.Join(s.root, "run"), noClaims{})
	s.add("kube-system/tandem-dra-a", "tandem-dra", "gpu-0", itself(t),
		"--run-dir="+filepath.Join(s.root, "run"))
	s.add("team/done", "done", "gpu-0", nil)
	s.change("team/done", func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
	})
	s.add("team/waits", "waits", "gpu-0", nil)
	kubeconfig := s.start()
	for pod, want := range map[string]string{
		"done":  "the pod has ended (Succeeded); its claims are released",
		"waits": "no claim of the pod is prepared",
	} {
		if code, _, stderr := plugin(kubeconfig, "explain", pod, "--all"); code != cli.ExitError ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", pod, code, stderr)
		}
	}
}

// TestClusterExplainsRejection: a pod that the Topology Manager has rejected is compared with free devices of
// its node, because no daemon has a decision for the pod.
func TestClusterExplainsRejection(t *testing.T) {
	t.Parallel()
	s := theCluster(t)
	s.pods["team/rejected"] = failed("team", "rejected", "TopologyAffinityError")
	s.change("team/rejected", func(p *corev1.Pod) {
		limits := corev1.ResourceList{
			"amd.com/gpu": resource.MustParse("3"), "tandem.dev/rdma_vf": resource.MustParse("3"),
		}
		p.Spec.NodeName = "gpu-1"
		p.Spec.Containers = []corev1.Container{
			{Name: "worker", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}},
		}
	})
	kubeconfig := s.start()
	code, stdout, stderr := plugin(kubeconfig, "explain", "rejected")
	text := strings.Join(strings.Fields(stdout), " ")
	for _, want := range []string{
		"team/rejected was rejected by the kubelet's Topology Manager on node gpu-1", "amd.com/gpu 3 0 2/4 1 4/4",
		"HELD BY RESOURCE NUMA DEVICES SINCE team/train-0 amd.com/gpu 0 2 unknown",
	} {
		if code != cli.ExitOK || stderr != "" || !strings.Contains(text, want) {
			t.Errorf("exit code %d, %q; no %q:\n%s", code, stderr, want, stdout)
		}
	}
	var explained coordinator.PodExplanation
	_, stdout, _ = plugin(kubeconfig, "explain", "rejected", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &explained); err != nil || explained.Rejection == nil ||
		!explained.Rejection.FitsEmpty {
		t.Errorf("%v: %s", err, stdout)
	}
}

// TestClusterDoctor: doctor's findings have the same exit codes as on the node, and the kubelet's
// configuration comes through the API server.
func TestClusterDoctor(t *testing.T) {
	t.Parallel()
	node := layOut(t, sysfs(t, "oci-mi300x-derived", 4))
	runPlugins(t, node.path("run"))
	s := newPodServer(t)
	flags := []string{
		"--sysfs-root=" + node.path("sys"), "--run-dir=" + node.path("run"), "--kubelet-dir=" + node.path("other"),
	}
	s.add("kube-system/tandem-gpu-a", "tandem-gpu", "gpu-1", itself(t), flags...)
	s.add("kube-system/tandem-rdma-a", "tandem-rdma", "gpu-1", itself(t),
		append(flags, "--dev-root="+node.path("dev"), "--config-file="+node.path("config.json"))...)
	kubeconfig := s.start()
	code, stdout, stderr := plugin(kubeconfig, "doctor", "gpu-1")
	if code != exitFound || !strings.Contains(stderr, "ask the kubelet of gpu-1 for its configuration") ||
		!strings.Contains(stdout, "kubelet-config") {
		t.Errorf("without the right to ask the kubelet: exit code %d, %s%s", code, stdout, stderr)
	}
	s.pods["team/train-0"] = failed("team", "train-0", "TopologyAffinityError")
	s.change("team/train-0", func(p *corev1.Pod) { p.Spec.NodeName = "gpu-1" })
	s.pods["team/elsewhere"] = failed("team", "elsewhere", "TopologyAffinityError")
	s.pods["team/ended"] = failed("team", "ended", "Evicted")
	s.change("team/ended", func(p *corev1.Pod) { p.Spec.NodeName = "gpu-1" })
	for policy, want := range map[string]bool{"restricted": false, "best-effort": true} {
		s.configz["gpu-1"] = fmt.Sprintf(`{"kubeletconfig":{"topologyManagerPolicy":%q,"topologyManagerScope":"container"}}`,
			policy)
		code, stdout, stderr = plugin(kubeconfig, "doctor", "gpu-1", "-o", "json")
		if code != exitFound && code != exitUnknown || stderr != "" ||
			!strings.Contains(stdout, "1 pod is rejected") || strings.Contains(stdout, `"remark"`) ||
			strings.Contains(stdout, `"kubelet-config"`) || strings.Contains(stdout, `"topology-policy"`) != want {
			t.Errorf("policy %s: exit code %d, %s%s", policy, code, stdout, stderr)
		}
	}
}

// TestClusterDoctorNamesShapes: the report names the requests of the refused pods, and is for a reader who is
// not on the node.
func TestClusterDoctorNamesShapes(t *testing.T) {
	t.Parallel()
	node := layOut(t, sysfs(t, "oci-mi300x-derived", 4))
	offered := onMachine(t, "oci-mi300x-derived", 4)
	serveAs(t, node.path("run"), recordedNode{answer: offered})
	node.remove("kubelet/pod-resources")
	servePodResources(t, node.path("kubelet"), allocatable{devices: idsOf(offered)})
	s := newPodServer(t)
	s.add("kube-system/tandem-rdma-a", "tandem-rdma", "gpu-1", itself(t), "--sysfs-root="+node.path("sys"),
		"--run-dir="+node.path("run"), "--kubelet-dir="+node.path("kubelet"), "--dev-root="+node.path("dev"))
	s.add("kube-system/tandem-gpu-a", "tandem-gpu", "gpu-1", nil, "--vendor=nvidia")
	s.change("kube-system/tandem-gpu-a", func(p *corev1.Pod) { p.Status.ContainerStatuses = nil })
	s.configz["gpu-1"] = `{"kubeletconfig":{"topologyManagerPolicy":"restricted","cpuManagerPolicy":"static",` +
		`"reservedSystemCPUs":"0","topologyManagerScope":"pod"}}`
	for name, devices := range map[string]string{"a": "2", "b": "2", "c": "5"} {
		s.pods["team/"+name] = failed("team", name, "TopologyAffinityError")
		s.change("team/"+name, func(p *corev1.Pod) {
			limits := corev1.ResourceList{
				"amd.com/gpu": resource.MustParse(devices), "tandem.dev/rdma_vf": resource.MustParse(devices),
				"cpu": resource.MustParse("16"), "memory": resource.MustParse("1Gi"),
			}
			p.Spec.NodeName = "gpu-1"
			p.Spec.Containers = []corev1.Container{
				{Name: "worker", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}},
			}
		})
	}
	code, stdout, stderr := plugin(s.start(), "doctor", "gpu-1", "--cpus", "200")
	if code != exitFound || stderr != "" {
		t.Fatalf("exit code %d, %s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"3 pods are rejected",
		"2 pods requested 2 GPUs and 2 VFs with 16 CPUs: rejected only while devices are in use",
		"1 pod requested 5 GPUs and 5 VFs with 16 CPUs: always rejected, even on an empty node",
		"no scheduler can help", "use tandem-scheduler", "spec.nodeName=gpu-1 lists them",
		"seen  configz of the kubelet of gpu-1: topologyManagerScope: pod",
		"fix   in the kubelet's configuration: topologyManagerScope: container",
		"Containers that request 1+1 to 4+4 with 200 CPUs",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q:\n%s", want, stdout)
		}
	}
}

// TestDocumentedPlugin runs every command of kubectl tandem in the documents.
func TestDocumentedPlugin(t *testing.T) {
	t.Parallel()
	commands, err := docs.Of("../..", "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	node := layOut(t, sysfs(t, "oci-mi300x-derived", 4))
	runPlugins(t, node.path("run"))
	s := newPodServer(t)
	s.add("kube-system/tandem-gpu-a", "tandem-gpu", "NODE", itself(t), "--sysfs-root="+node.path("sys"),
		"--dev-root="+node.path("dev"), "--run-dir="+node.path("run"), "--kubelet-dir="+node.path("kubelet"))
	s.add("team/train-0", "train", "NODE", nil)
	kubeconfig := s.start()
	count := 0
	for _, c := range commands {
		if c.Args[0] != "tandem" {
			continue
		}
		count++
		code, stdout, stderr := plugin(kubeconfig, c.Args[1:]...)
		if code != cli.ExitOK && code != exitFound && code != exitUnknown || stdout == "" {
			t.Errorf("%s: exit code %d, %s%s", c, code, stdout, stderr)
		}
	}
	if count < 3 {
		t.Errorf("the documents show %d commands", count)
	}
}

func TestClusterUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"explain":             "kubectl tandem explain: want one pod",
		"explain a/b/c":       "want [NAMESPACE/]POD",
		"doctor":              "want one node",
		"doctor n --cpus=-1":  "--cpus -1: want 0 or more",
		"status now":          `unexpected argument "now"`,
		"status -o wide":      "want table or json",
		"status --timeout=0s": "--timeout 0s: want more than 0",
		"topo":                `kubectl tandem: unknown command "topo"`,
	} {
		code, _, stderr := plugin("none", strings.Fields(args)...)
		if code != cli.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q; want %q", args, code, stderr, want)
		}
	}
	if code, _, stderr := plugin("/nowhere/config", "status"); code != cli.ExitError ||
		!strings.Contains(stderr, "read kubeconfig: stat /nowhere/config") {
		t.Errorf("without a kubeconfig: exit code %d, %q", code, stderr)
	}
}

// decisionsOfTwo are plugins with decisions for two pods, and for an unknown owner.
type decisionsOfTwo struct{ plugins }

func (decisionsOfTwo) Explain(context.Context, *api.ExplainRequest) (*api.ExplainResponse, error) {
	decision := func(o *api.Owner) *api.Decision { return &api.Decision{Resource: "amd.com/gpu", Container: o} }
	train := &api.Owner{Namespace: "team", Pod: "train-0", Container: "worker"}
	return &api.ExplainResponse{Decisions: []*api.Decision{
		decision(train), decision(nil), decision(&api.Owner{Namespace: "a", Pod: "one", Container: "c"}),
		decision(train),
	}}, nil
}

// TestCompletion: the completions for both names of the program.
func TestCompletion(t *testing.T) {
	t.Parallel()
	kubeconfig := theCluster(t).start()
	runDir := filepath.Join(t.TempDir(), "run")
	serveAs(t, runDir, decisionsOfTwo{})
	of := func(name string, args ...string) string {
		var out, problems bytes.Buffer
		root, args := commandOf(append([]string{name}, args...))
		cli.Execute(root, args, &out, &problems)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return strings.Join(lines[:len(lines)-1], " ") // the last line has the completion mode
	}
	const k, t1 = asCompletion, "tandem"
	for _, c := range []struct{ got, want string }{
		{of(k, "--kubeconfig", kubeconfig, "explain", ""), "train-0 train-1"},
		{of(k, "--kubeconfig", kubeconfig, "explain", "kube-system/"),
			"kube-system/tandem-dra-a kube-system/tandem-dra-b kube-system/tandem-dra-c " +
				"kube-system/tandem-gpu-b kube-system/tandem-rdma-a"},
		{of(k, "--kubeconfig", kubeconfig, "explain", "train-0", ""), ""},
		{of(k, "--kubeconfig", kubeconfig, "doctor", ""), "gpu-0 gpu-1 gpu-2 gpu-3"},
		{of(k, "--kubeconfig", kubeconfig, "explain", "train-0", "--node", ""), "gpu-0 gpu-1 gpu-2 gpu-3"},
		{of(k, "--kubeconfig", "none", "doctor", ""), ""},
		{of(k, "status", "-o", ""), "table json"},
		{of(t1, "__complete", "status", "-o", ""), "table wide json"},
		{of(t1, "__complete", "topo", "-o", ""), "table json svg nccl resourceslices"},
		{of(t1, "__complete", "explain", "--run-dir", runDir, ""), "a/one team/train-0"},
		{of(t1, "__complete", "verify", "--within", "P"), "PIX PXB C2C PHB NODE SYS"},
		{of(t1, "__complete", "plan", "--machine", ""), "txt json"},
	} {
		if c.got != c.want {
			t.Errorf("completes %q, want %q", c.got, c.want)
		}
	}
}
