package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// kubeletConfiguration is what the kubelet was told, as far as it matters here: keys of KubeletConfiguration
// (k8s.io/kubelet/config/v1beta1).
type kubeletConfiguration struct {
	read           bool              // there was a file
	files          []string          // that were read, the configuration first
	origin         map[string]string // key to the file or flag that sets it
	Policy         string            `json:"topologyManagerPolicy"`
	Scope          string            `json:"topologyManagerScope"`
	PolicyOptions  map[string]string `json:"topologyManagerPolicyOptions"`
	CPUPolicy      string            `json:"cpuManagerPolicy"`
	ReservedCPUs   string            `json:"reservedSystemCPUs"`
	KubeReserved   map[string]any    `json:"kubeReserved"`
	SystemReserved map[string]any    `json:"systemReserved"`
	MemoryPolicy   string            `json:"memoryManagerPolicy"`
	ReservedMemory []any             `json:"reservedMemory"`
}

// DefaultConfig is where kubeadm puts the kubelet's configuration.
func DefaultConfig(kubeletDir string) string {
	return filepath.Join(kubeletDir, configuration.FileName)
}

// Files tells where the kubelet's configuration and its drop-ins are: where the node says, else where the
// running kubelet's command line says, else where kubeadm puts it.
func (n Node) Files() (config, dir string) {
	flags := runningFlags(n.ProcRoot)
	config, dir = flags["config"], flags["config-dir"]
	if n.Config != "" {
		config = n.Config
	}
	if n.ConfigDir != "" {
		dir = n.ConfigDir
	}
	if config == "" {
		config = DefaultConfig(n.KubeletDir)
	}
	return config, dir
}

// readKubelet reads the configuration as the kubelet does: the file, then the drop-ins in their order, then
// the flags. That it cannot be read is a finding.
func (e *examination) readKubelet() {
	k, err := readKubelet(e.Node)
	var wrong *configuration.FileError
	if e.kubelet = k; !errors.As(err, &wrong) || e.denied(wrong.File, wrong.Err) {
		return
	}
	e.find(Finding{
		ID: "kubelet-config", Severity: Unknown,
		Summary:  "The kubelet's configuration cannot be read.",
		Evidence: []string{wrong.Error()},
		Why:      "It decides whether GPUs and VFs of a container come from the same NUMA nodes at all.",
		Fix: []string{
			"name the file: tandem doctor --kubelet-config FILE (ps -C kubelet -o args shows --config)",
		},
	})
}

// readKubelet fails with a [configuration.FileError].
func readKubelet(n Node) (kubeletConfiguration, error) {
	k := kubeletConfiguration{
		Policy: "none", Scope: "container", CPUPolicy: "none", MemoryPolicy: "None", origin: map[string]string{},
	}
	config, dir := n.Files()
	files, err := configuration.DropIns(dir)
	if err != nil {
		return kubeletConfiguration{}, err
	}
	for _, file := range append([]string{config}, files...) {
		err := k.merge(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return kubeletConfiguration{}, &configuration.FileError{File: file, Err: err}
		}
		k.files = append(k.files, file)
	}
	k.read = len(k.files) > 0
	if !k.read {
		return k, &configuration.FileError{File: config, Err: fs.ErrNotExist}
	}
	k.override(runningFlags(n.ProcRoot))
	return k, nil
}

func (k *kubeletConfiguration) merge(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	keys, err := configuration.Decode(content, k)
	for _, key := range keys {
		k.origin[key] = file
	}
	return err
}

// override takes over the flags that stand above the configuration (cmd/kubelet/app/options of Kubernetes).
func (k *kubeletConfiguration) override(flags map[string]string) {
	for flag, target := range map[string]struct {
		key   string
		value *string
	}{
		"topology-manager-policy": {"topologyManagerPolicy", &k.Policy},
		"topology-manager-scope":  {"topologyManagerScope", &k.Scope},
		"cpu-manager-policy":      {"cpuManagerPolicy", &k.CPUPolicy},
		"memory-manager-policy":   {"memoryManagerPolicy", &k.MemoryPolicy},
		"reserved-cpus":           {"reservedSystemCPUs", &k.ReservedCPUs},
	} {
		if value, ok := flags[flag]; ok {
			*target.value = value
			k.origin[target.key] = "the kubelet's flag --" + flag
		}
	}
}

// says is the evidence for a key: where it is set, or that it is not.
func (k *kubeletConfiguration) says(key string, value any) string {
	if origin, ok := k.origin[key]; ok {
		return fmt.Sprintf("%s: %s: %v", origin, key, value)
	}
	return fmt.Sprintf("%s: %s is not set, the default is %v", strings.Join(k.files, ", "), key, value)
}

// runningFlags are the flags of the kubelet that runs on this node; none where it cannot be seen.
func runningFlags(procRoot string) map[string]string {
	flags := map[string]string{}
	if procRoot == "" {
		return flags
	}
	names, _ := filepath.Glob(filepath.Join(procRoot, "[0-9]*", "comm")) // the pattern is well formed
	for _, name := range names {
		if comm, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(comm)) != "kubelet" {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		for i, arg := range args {
			flag, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if !ok && i+1 < len(args) {
				value = args[i+1]
			}
			if strings.HasPrefix(arg, "-") {
				flags[flag] = value
			}
		}
	}
	return flags
}
