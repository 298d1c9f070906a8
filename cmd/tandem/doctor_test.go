// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

const plainKubelet = `# of the cloud
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
topologyManagerPolicy: none # for now
kubeReserved: {cpu: 500m}
`

// files are all files of the node and their content.
func (s *sick) files() map[string]string {
	s.t.Helper()
	files := map[string]string{}
	s.check(filepath.WalkDir(s.root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		files[name] = string(content)
		return err
	}))
	return files
}

// plainKubelet is an unconfigured kubelet that has a folder of drop-ins.
func (s *sick) plainKubelet() {
	s.t.Helper()
	s.write("kubelet/config.yaml", plainKubelet)
	s.cpuState("none", "")
	s.check(os.Mkdir(s.path("kubelet.d"), 0o755))
	s.process("7", "kubelet", "--config="+s.path("kubelet/config.yaml"), "--config-dir", s.path("kubelet.d"))
}

// found returns the findings of tandem doctor, by ID.
func (s *sick) found() (ids []string) {
	s.t.Helper()
	_, stdout, stderr := run(s.command("-o", "json")...)
	var document doctor.Findings
	err := json.Unmarshal([]byte(stdout), &document)
	if err != nil || document.Findings == nil {
		s.t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	for _, f := range document.Findings {
		ids = append(ids, f.ID)
	}
	return ids
}

// TestDropIn: what is printed are the settings of deployments/kubelet/config.yaml. Nothing on the node
// changes, and with the file in place nothing is wrong with the kubelet but its CPU manager.
func TestDropIn(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, oci, 1))
	s.plainKubelet()
	s.own("sys/bus")
	before := s.files()
	printed := succeed(t, s.command("--drop-in")...)
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("tandem doctor changed something (-before +after):\n%s", diff)
	}
	shipped, err := os.ReadFile("../../deployments/kubelet/config.yaml")
	s.check(err)
	if diff := cmp.Diff(object(t, string(shipped)), object(t, printed)); diff != "" {
		t.Errorf("deployments/kubelet/config.yaml and the drop-in differ (-shipped +printed):\n%s", diff)
	}
	s.write("kubelet.d/tandem.conf", printed)
	if found := s.found(); !slices.Equal(found, []string{"cpu-manager"}) {
		t.Errorf("found %q", found)
	}
}

func object(t *testing.T, content string) (o map[string]any) {
	t.Helper()
	ready(t, yaml.UnmarshalStrict([]byte(content), &o))
	return o
}

// TestDropInStaticCPUs: with the printed settings, and without the state of the other policy, which doctor
// names, the kubelet starts.
func TestDropInStaticCPUs(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, oci, 1))
	s.plainKubelet()
	s.write("kubelet/config.yaml", kubeletKind)
	s.write("sys/devices/system/node/online", "0-8\n")
	s.write("kubelet.d/tandem.conf", succeed(t, s.command("--drop-in", "--static-cpus")...))
	if found := s.found(); !slices.Equal(found, []string{"cpu-state"}) {
		t.Errorf("found %q", found)
	}
	s.remove("kubelet/cpu_manager_state")
	if found := s.found(); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

// TestDoctorOfRecordings: the report on each recorded machine matches the schema and says what is unknown.
func TestDoctorOfRecordings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../test/machines/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d machines, %v", len(files), err)
	}
	for _, file := range files {
		code, stdout, stderr := run("doctor", "--machine", file, "-o", "json")
		if code != cli.ExitFound && code != cli.ExitUnknown || stderr != "" {
			t.Errorf("%s: exit code %d, standard error %q", file, code, stderr)
		}
		validate(t, "doctor", stdout)
		if !strings.Contains(stdout, `"id": "recording"`) {
			t.Errorf("%s: the report does not say what is unknown: %s", file, stdout)
		}
	}
}

// TestDoctorKnowsTheCost: doctor quotes the measurement of the default scheduler in docs/performance.md: the
// share of pods that kubelets rejected at least once.
func TestDoctorKnowsTheCost(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/performance.md")
	ready(t, err)
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	_, text, _ := run(s.command("--refused-pods", "1")...)
	row := regexp.MustCompile(`(?m)^\| default scheduler \|[^|]*\| ([\d.]+) \|`).FindSubmatch(page)
	if row == nil {
		t.Fatal("docs/performance.md has no row of the default scheduler")
	}
	want := "With 90 % of the GPUs requested, kubelets rejected " + string(row[1]) + " % of its pods"
	if !strings.Contains(text, want) {
		t.Errorf("doctor does not say %q:\n%s", want, text)
	}
}

// TestDoctorCountsRefusedShapes: time is linear in the number of different requests of refused pods, which
// tenants choose: six times the pods take six times the CPU time, or less.
func TestDoctorCountsRefusedShapes(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	const pods = 250
	once, more := s.timeOfRefused(pods), s.timeOfRefused(6*pods)
	if more > 7*once {
		t.Errorf("the time is not linear: %s for %d pods, %s for %d", once, pods, more, 6*pods)
	}
}

// timeOfRefused returns the CPU time of tandem doctor with a number of refused pods of different requests.
func (s *sick) timeOfRefused(pods int) time.Duration {
	s.t.Helper()
	var refused []corev1.Pod
	for i := range pods {
		pod := failed("team", fmt.Sprint("train-", i), "TopologyAffinityError")
		limits := corev1.ResourceList{
			"amd.com/gpu": resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse(fmt.Sprint(i + 1)),
			corev1.ResourceMemory: resource.MustParse("1Gi"),
		}
		pod.Spec.Containers = []corev1.Container{
			{Name: "a", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}},
		}
		refused = append(refused, pod)
	}
	s.pods.Store(&refused)
	cmd := exec.CommandContext(s.t.Context(), "/proc/self/exe", s.command()...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	output, _ := cmd.CombinedOutput() // the exit code tells that there is a finding
	if want := fmt.Sprintf("%d pods are rejected", pods); !strings.Contains(string(output), want) {
		s.t.Fatalf("want %q in\n%s", want, output)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// TestRejectionBySettings: a rejected pod is judged by the settings of the running kubelet, with drop-ins and
// flags, as by doctor; those of a kubelet with another root folder do not count.
func TestRejectionBySettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		root, policy, scope string
	}{
		"drop-in and flag": {"kubelet", "single-numa-node", "pod"},
		"another kubelet":  {"other", "restricted", "container"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
			s.write("drop-ins/99.conf", kubeletKind+"topologyManagerScope: pod\n")
			s.write("other/file", "")
			s.process("7", "kubelet", "--root-dir="+s.path(c.root), "--config="+s.path("kubelet/config.yaml"),
				"--config-dir="+s.path("drop-ins"), "--topology-manager-policy=single-numa-node")
			s.pods.Store(&[]corev1.Pod{failed("team", "train-1", intent.TopologyAffinity)})
			run := filepath.Join(t.TempDir(), "run")
			twoPairs().run(t, run)
			folders := coordinator.Folders{RunDir: run, KubeletDir: s.path("kubelet"), ProcRoot: s.path("proc")}
			known, err := folders.Explain(t.Context(), coordinator.PodQuestion{Namespace: "team", Pod: "train-1"})
			r := known.Rejection
			if err != nil || r == nil || r.Policy != c.policy || r.Scope != c.scope {
				t.Errorf("%+v: %v", r, err)
			}
		})
	}
}
