// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/podexec"
)

// podServer is an API server with pods in which programs can be started.
type podServer struct {
	t         *testing.T
	root      string                // folder of the nodes' own
	pods      map[string]corev1.Pod // by namespace/name
	sets      map[types.UID]*appsv1.DaemonSet
	programs  map[string]podexec.Program
	configz   map[string]string // by node: answer of the kubelet
	oldRoutes bool              // a proxy without websockets

	mu    sync.Mutex
	spoke []string // protocols of started programs
}

func newPodServer(t *testing.T) *podServer {
	return &podServer{
		t: t, root: t.TempDir(), pods: map[string]corev1.Pod{}, programs: map[string]podexec.Program{},
		configz: map[string]string{}, sets: map[types.UID]*appsv1.DaemonSet{},
	}
}

// add makes a running pod on a node, of a daemon with these flags.
func (s *podServer) add(name, label, node string, program podexec.Program, flags ...string) {
	namespace, pod, _ := strings.Cut(name, "/")
	set := s.daemonSet(namespace, label)
	s.pods[name] = corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: pod, Labels: map[string]string{"app.kubernetes.io/name": label},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet")),
			},
		},
		Spec: corev1.PodSpec{
			NodeName: node,
			Containers: []corev1.Container{
				{Name: "first"}, {Name: label, Command: []string{label}, Args: flags},
			},
			Volumes: set.Spec.Template.Spec.Volumes,
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: label, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}},
	}
	s.programs[name] = program
}

// daemonSet returns the DaemonSet of a namespace whose pods have a label, and creates it on first use.
func (s *podServer) daemonSet(namespace, label string) *appsv1.DaemonSet {
	uid := types.UID(namespace + "/" + label)
	if set := s.sets[uid]; set != nil {
		return set
	}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: label, UID: uid},
		Status:     appsv1.DaemonSetStatus{CurrentNumberScheduled: 1},
	}
	set.Spec.Template.Labels = map[string]string{"app.kubernetes.io/name": label}
	set.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "kubelet", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet"},
	}}}
	s.sets[uid] = set
	return set
}

// change changes a pod.
func (s *podServer) change(name string, how func(*corev1.Pod)) {
	pod := s.pods[name]
	how(&pod)
	s.pods[name] = pod
}

// start serves until the test ends, and returns a kubeconfig with the namespace team.
func (s *podServer) start() (kubeconfig string) {
	s.t.Helper()
	server := httptest.NewTLSServer(s)
	s.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return write(s.t, "kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: team}}]
current-context: c
`, server.URL))
}

func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		s.t.Errorf("%s comes without the caller's token", r.URL)
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	switch {
	case strings.HasPrefix(r.URL.Path, "/apis/apps/v1/"):
		s.listSets(w, strings.TrimPrefix(r.URL.Path, "/apis/apps/v1/"))
	case len(path) == 4 && path[0] == "nodes" && path[2] == "proxy" && s.configz[path[1]] != "":
		fmt.Fprint(w, s.configz[path[1]])
	case len(path) == 1 && path[0] == "pods":
		s.list(w, r, "")
	case len(path) == 3 && path[2] == "pods":
		s.list(w, r, path[1])
	case len(path) == 5 && path[4] == "exec":
		s.exec(w, r, path[1]+"/"+path[3])
	case len(path) == 4:
		if pod, ok := s.pods[path[1]+"/"+path[3]]; ok {
			pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
			answer(w, http.StatusOK, pod)
			return
		}
		fallthrough
	default:
		answer(w, http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Message: "not here",
		})
	}
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) // the client may have gone
}

func (s *podServer) list(w http.ResponseWriter, r *http.Request, namespace string) {
	query := r.URL.Query()
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		s.t.Error(err)
	}
	fieldSelector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		s.t.Error(err)
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if pod := s.pods[name]; (namespace == "" || pod.Namespace == namespace) &&
			selector.Matches(labels.Set(pod.Labels)) && fieldSelector.Matches(fields.Set{
			"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase),
		}) {
			list.Items = append(list.Items, pod)
		}
	}
	answer(w, http.StatusOK, list)
}

// listSets answers with the DaemonSets of a namespace, or of all.
func (s *podServer) listSets(w http.ResponseWriter, path string) {
	list := appsv1.DaemonSetList{TypeMeta: metav1.TypeMeta{Kind: "DaemonSetList", APIVersion: "apps/v1"}}
	for _, uid := range slices.Sorted(maps.Keys(s.sets)) {
		if set := s.sets[uid]; path == "daemonsets" || path == "namespaces/"+set.Namespace+"/daemonsets" {
			list.Items = append(list.Items, *set)
		}
	}
	answer(w, http.StatusOK, list)
}

func (s *podServer) exec(w http.ResponseWriter, r *http.Request, name string) {
	if s.oldRoutes && r.Header.Get("Upgrade") == "websocket" {
		http.Error(w, "no websockets here", http.StatusForbidden)
		return
	}
	s.mu.Lock()
	s.spoke = append(s.spoke, r.Header.Get("Upgrade"))
	s.mu.Unlock()
	if want := s.pods[name].Labels["app.kubernetes.io/name"]; r.URL.Query().Get("container") != want {
		s.t.Errorf("%s: started in container %q, want %q", name, r.URL.Query().Get("container"), want)
	}
	podexec.Serve(w, r, name, s.programs[name])
}

// itself is the program tandem, in this process. Its standard input is a file.
func itself(t *testing.T) podexec.Program {
	return func(_ context.Context, _ string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
		if args[0] != "tandem" {
			t.Errorf("started %v", args)
		}
		args = slices.Clone(args)
		for i, arg := range args {
			if name, file, _ := strings.Cut(arg, "="); file == "/dev/stdin" {
				args[i] = name + "=" + keep(t, stdin)
			}
		}
		return cli.Execute(newRoot(), args[1:], stdout, stderr)
	}
}

func keep(t *testing.T, from io.Reader) string {
	content, err := io.ReadAll(from)
	if err != nil {
		t.Error(err)
	}
	file, err := os.CreateTemp(t.TempDir(), "stdin")
	if err != nil {
		t.Error(err)
		return ""
	}
	defer file.Close()
	if _, err := io.Copy(file, bytes.NewReader(content)); err != nil {
		t.Error(err)
	}
	return file.Name()
}
