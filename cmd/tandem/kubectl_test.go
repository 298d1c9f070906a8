// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/podexec"
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
	plugins{status: used}.run(t, filepath.Join(root, "run"))
	serveKubelet(t, filepath.Join(root, "kubelet"), used, []string{"amd.com/gpu", "tandem.dev/rdma_vf"})
	runDir, kubeletDir := filepath.Join(root, "run"), filepath.Join(root, "kubelet")
	flags := []string{"--run-dir=" + runDir, "--kubelet-dir=" + kubeletDir}
	s.add("kube-system/tandem-gpu-b", "tandem-gpu", "gpu-1", itself(t), flags...)
	s.add("kube-system/tandem-rdma-a", "tandem-rdma", "gpu-1", itself(t), flags...)
	twoPairs().run(t, filepath.Join(root, "explained"))
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

// wholeCluster adds to theCluster nodes for doctor, pods that the Topology Manager has rejected, and pods
// whose claims are not prepared.
func wholeCluster(t *testing.T) (s *podServer, node *sick) {
	s, node = theCluster(t), layOut(t, sysfs(t, oci, 4))
	offered := onMachine(t, oci, 4)
	node.serve(plugins{status: offered}, podResources{devices: idsOf(offered)})
	flags := []string{
		"--sysfs-root=" + node.path("sys"), "--run-dir=" + node.path("run"), "--dev-root=" + node.path("dev"),
		"--kubelet-dir=" + node.path("kubelet"),
	}
	s.add("kube-system/tandem-gpu-u", "tandem-gpu", "unknown", itself(t), flags...)
	for name, settings := range map[string]string{
		"restricted": `"topologyManagerPolicy":"restricted"`, "best": `"topologyManagerPolicy":"best-effort"`,
		"pods": `"topologyManagerPolicy":"restricted","cpuManagerPolicy":"static","reservedSystemCPUs":"0","topologyManagerScope":"pod"`,
	} {
		s.configz[name] = `{"kubeletconfig":{` + settings + `}}`
		s.add("kube-system/tandem-gpu-"+name, "tandem-gpu", name, itself(t), flags...)
		s.add("kube-system/tandem-rdma-"+name, "tandem-rdma", name, itself(t),
			append(flags, "--config-file="+node.path("config.json"))...)
	}
	for name, devices := range map[string]string{
		"gpu-1/rejected": "3", "pods/a": "2", "pods/b": "2", "pods/c": "5",
	} {
		on, pod, _ := strings.Cut(name, "/")
		s.pods["team/"+pod] = failed("team", pod, "TopologyAffinityError")
		s.change("team/"+pod, func(p *corev1.Pod) {
			limits := corev1.ResourceList{
				"amd.com/gpu": resource.MustParse(devices), "tandem.dev/rdma_vf": resource.MustParse(devices),
			}
			if on == "pods" {
				limits["cpu"], limits["memory"] = resource.MustParse("16"), resource.MustParse("1Gi")
			}
			p.Spec.NodeName = on
			p.Spec.Containers = []corev1.Container{
				{Name: "worker", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}},
			}
		})
	}
	s.pods["team/elsewhere"] = failed("team", "elsewhere", "TopologyAffinityError")
	s.pods["team/ended"] = failed("team", "ended", "Evicted")
	s.change("team/ended", func(p *corev1.Pod) { p.Spec.NodeName = "best" })
	noClaims := twoPairs()
	noClaims.explain = func(*api.ExplainRequest) ([]*api.Decision, error) {
		return nil, errors.New("explain pod team/done: no claim of the pod is prepared on this node now")
	}
	noClaims.run(t, filepath.Join(s.root, "claims"))
	s.add("kube-system/tandem-dra-n", "tandem-dra", "claims", itself(t),
		"--run-dir="+filepath.Join(s.root, "claims"))
	s.add("team/done", "done", "claims", nil)
	s.change("team/done", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded} })
	s.add("team/waits", "waits", "claims", nil)
	return s, node
}

// TestClusterScript: what kubectl tandem prints, and the completions for both names of the program.
func TestClusterScript(t *testing.T) {
	t.Parallel()
	s, node := wholeCluster(t)
	kubeconfig, runDir := s.start(), filepath.Join(t.TempDir(), "run")
	plugins{explain: func(*api.ExplainRequest) ([]*api.Decision, error) {
		decision := func(o *api.Owner) *api.Decision { return &api.Decision{Resource: "amd.com/gpu", Container: o} }
		train := &api.Owner{Namespace: "team", Pod: "train-0", Container: "worker"}
		return []*api.Decision{
			decision(train), decision(nil), decision(&api.Owner{Namespace: "a", Pod: "one", Container: "c"}),
			decision(train),
		}, nil
	}}.run(t, runDir)
	var shown colours
	places := strings.NewReplacer(node.root, "NODE", s.root, "ROOT")
	golden.Script{
		Run: func(args []string) (code int, stdout, stderr string) {
			var out, problems bytes.Buffer
			switch args[0] {
			case "kubectl":
				args = append([]string{"/usr/local/bin/" + asPlugin, "--kubeconfig", kubeconfig, "--color=always"},
					args[2:]...)
			case asCompletion:
				args = append([]string{asCompletion, "--kubeconfig", kubeconfig}, args[1:]...)
			}
			root, args := commandOf(args)
			code = cli.Execute(root, args, &out, &problems)
			return code, places.Replace(shown.strip(out.String())), places.Replace(problems.String())
		},
		Word: func(string) string { return runDir },
	}.Check(t, "testdata/scripts/kubectl.txt")
	shown.check(t, "red ERROR, red NO ANSWER, red was rejected, yellow WARNING, yellow degraded, "+
		"yellow is degraded")
}

// TestOldRoutes: programs are started over websockets, and over SPDY where a proxy knows no websockets.
func TestOldRoutes(t *testing.T) {
	t.Parallel()
	for old, want := range map[bool]string{false: "websocket", true: "SPDY/3.1"} {
		s := theCluster(t)
		s.oldRoutes = old
		if code, _, stderr := plugin(s.start(), "status", "--timeout=1m"); code != cli.ExitOK || stderr != "" {
			t.Errorf("exit code %d, %q", code, stderr)
		}
		if slices.ContainsFunc(s.spoke, func(p string) bool { return p != want }) || len(s.spoke) == 0 {
			t.Errorf("programs were started over %v, want %s", s.spoke, want)
		}
	}
}

// TestClustersScript: what kubectl tandem prints of small clusters. A step "cluster" makes one without pods,
// whose nodes' files are in ROOT; "daemon" adds a pod of one. The programs that a command starts are shown.
func TestClustersScript(t *testing.T) {
	t.Parallel()
	var s *podServer
	var kubeconfig string
	var started []string
	golden.Script{
		Run: func(args []string) (code int, stdout, stderr string) {
			if kubeconfig == "" {
				kubeconfig = s.start()
			}
			started = nil
			code, stdout, stderr = plugin(kubeconfig, args[2:]...)
			for _, pod := range started {
				stderr += "started in " + pod + "\n"
			}
			return code, strings.ReplaceAll(stdout, s.root, "ROOT"), strings.ReplaceAll(stderr, s.root, "ROOT")
		},
		Step: func(name, text string) {
			words := strings.Fields(text)
			switch name {
			case "cluster":
				s, kubeconfig = newPodServer(t), ""
			case "pod": // NAMESPACE/NAME NODE
				s.add(words[0], "train", words[1], nil)
			case "daemon": // NAMESPACE/NAME DAEMON NODE PROGRAM FLAG...
				program := map[string]podexec.Program{
					"tandem": itself(t), "tenant": recordsOf(&started), "silent": silent,
				}[words[3]]
				for i, flag := range words[4:] {
					words[4+i] = strings.ReplaceAll(flag, "ROOT", s.root)
				}
				s.add(words[0], words[1], words[2], program, words[4:]...)
			case "no-pods": // NAMESPACE DAEMON: no node matches
				s.daemonSet(words[0], words[1]).Status.CurrentNumberScheduled = 0
			default:
				t.Fatalf("no step is called %s", name)
			}
		},
	}.Check(t, "testdata/scripts/kubectl-clusters.txt")
}

// silent is a program that ends at once.
func silent(context.Context, string, []string, io.Reader, io.Writer, io.Writer) int {
	return cli.ExitOK
}

// TestDocumentedPlugin runs every command of kubectl tandem in the documents.
func TestDocumentedPlugin(t *testing.T) {
	t.Parallel()
	commands, err := docs.Of("../..", "kubectl")
	ready(t, err)
	node := layOut(t, sysfs(t, "oci-mi300x-derived", 4))
	twoPairs().run(t, node.path("run"))
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
		if code != cli.ExitOK && code != cli.ExitFound && code != cli.ExitUnknown || stdout == "" {
			t.Errorf("%s: exit code %d, %s%s", c, code, stdout, stderr)
		}
	}
	if count < 3 {
		t.Errorf("the documents show %d commands", count)
	}
}
