// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ConfigKind and ConfigVersion identify a file of the kubelet's configuration. The kubelet does not start
// with a file or drop-in without them (mergeKubeletConfigurations in cmd/kubelet/app/server.go).
const (
	ConfigKind    = "KubeletConfiguration"
	ConfigVersion = "kubelet.config.k8s.io/v1beta1"
)

// configObject is a file of the kubelet's configuration.
type configObject struct {
	top  *yamlnode.Node
	json []byte
}

// parseConfig reads a file: YAML becomes JSON, in which a number is no text (DecodeKubeletConfiguration in
// pkg/kubelet/kubeletconfig/util/codec). Of a repeated key the last one counts.
func parseConfig(content []byte) (o configObject, err error) {
	if len(content) == 0 {
		return o, errors.New("it is empty, and the kubelet does not start with an empty file: fill or remove it")
	}
	var document yamlnode.Node
	if err := yamlnode.Unmarshal(content, &document); err != nil {
		return o, err
	}
	if document.Kind != yamlnode.DocumentNode || document.Content[0].Kind != yamlnode.MappingNode {
		return o, errors.New("it is no object of keys and values")
	}
	o.top = document.Content[0]
	kind, version := o.valueOf("kind"), o.valueOf("apiVersion")
	if kind != ConfigKind || version != ConfigVersion {
		return o, fmt.Errorf("it is no %s of %s: its kind is %s, its apiVersion %s",
			ConfigKind, ConfigVersion, kind, version)
	}
	o.json, err = yaml.YAMLToJSON(content)
	return o, err
}

// keyNodes returns the keys of the object's top, with their nodes.
func (o configObject) keyNodes() map[string]*yamlnode.Node {
	keys := map[string]*yamlnode.Node{}
	for i := 0; i+1 < len(o.top.Content); i += 2 {
		keys[o.top.Content[i].Value] = o.top.Content[i]
	}
	return keys
}

func (o configObject) valueOf(key string) string {
	for i := 0; i+1 < len(o.top.Content); i += 2 {
		if value := o.top.Content[i+1].Value; o.top.Content[i].Value == key && value != "" {
			return value
		}
	}
	return "none"
}

// decodeInto decodes the object: keys in another case are not read, as by the kubelet.
func (o configObject) decodeInto(into *Settings) error {
	return o.typeError(kubejson.UnmarshalCaseSensitivePreserveInts(o.json, into))
}

// mergeInto merges a drop-in into an object (RFC 7386), and decodes the result. Here the kubelet reads keys
// in any case: of two that differ in their case the last one in the order of their bytes counts
// (mergeKubeletConfigurations in cmd/kubelet/app/server.go).
func (o configObject) mergeInto(into map[string]any) (merged Settings, err error) {
	var patch map[string]any
	if err := json.Unmarshal(o.json, &patch); err != nil {
		return merged, err
	}
	mergePatch(into, patch)
	content, err := json.Marshal(into)
	if err != nil {
		return merged, err
	}
	return merged, o.typeError(json.Unmarshal(content, &merged))
}

func mergePatch(into, patch map[string]any) {
	for key, value := range patch {
		inner, isObject := value.(map[string]any)
		if value == nil {
			delete(into, key)
			continue
		}
		if !isObject {
			into[key] = value
			continue
		}
		outer, hasObject := into[key].(map[string]any)
		if !hasObject {
			outer = map[string]any{}
			into[key] = outer
		}
		mergePatch(outer, inner)
	}
}

// typeError returns the error of a value's type with the key and the line.
func (o configObject) typeError(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	field, _, _ := strings.Cut(wrong.Field, ".")
	for key, node := range o.keyNodes() {
		if strings.EqualFold(key, field) {
			return fmt.Errorf("line %d: the value of %s cannot be of type %s", node.Line, key, wrong.Value)
		}
	}
	return err
}

// Flags are the kubelet's command line: the values of each flag, in their order.
type Flags map[string][]string

// ParseFlags reads a command line, with the program's name first.
func ParseFlags(args []string) Flags {
	flags := Flags{}
	for i := 1; i < len(args) && args[i] != "--"; i++ {
		if !strings.HasPrefix(args[i], "-") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !ok && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			value = args[i]
		}
		name = strings.ReplaceAll(name, "_", "-") // as the kubelet does (WordSepNormalizeFunc)
		flags[name] = append(flags[name], value)
	}
	return flags
}

// Last returns the value of a flag with a single value: of a repeated flag the last one counts.
func (f Flags) Last(name string) string {
	if values := f[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// mapEntries returns the entries of a map flag, "a=1,b=2" (MapStringString in k8s.io/component-base); of a
// flag that does not split its values each value is one entry.
func (f Flags) mapEntries(name string, split bool) map[string]string {
	object := map[string]string{}
	for _, value := range f[name] {
		list := []string{value}
		if split {
			list = strings.Split(value, ",")
		}
		for _, pair := range list {
			if key, value, ok := strings.Cut(pair, "="); ok {
				object[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
	}
	return object
}

// reservedMemory reads "0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=1Gi" (ReservedMemoryVar in pkg/util/flag).
func (f Flags) reservedMemory(name string) (list []any) {
	for _, value := range f[name] {
		for part := range strings.SplitSeq(value, ";") {
			if strings.Contains(part, ":") {
				list = append(list, part)
			}
		}
	}
	return list
}

// applyFlags applies the flags, which take precedence over files (cmd/kubelet/app/options of Kubernetes). A
// flag replaces an object completely.
func (s *Settings) applyFlags(flags Flags) {
	texts := map[string]struct {
		key   string
		value *string
	}{
		"topology-manager-policy": {"topologyManagerPolicy", &s.Policy},
		"topology-manager-scope":  {"topologyManagerScope", &s.Scope},
		"cpu-manager-policy":      {"cpuManagerPolicy", &s.CPUPolicy},
		"memory-manager-policy":   {"memoryManagerPolicy", &s.MemoryPolicy},
		"reserved-cpus":           {"reservedSystemCPUs", &s.ReservedCPUs},
		"kube-reserved-cgroup":    {"kubeReservedCgroup", &s.KubeReservedCgroup},
		"system-reserved-cgroup":  {"systemReservedCgroup", &s.SystemReservedCgroup},
	}
	objects := map[string]struct {
		key   string
		value *map[string]string
	}{
		"topology-manager-policy-options": {"topologyManagerPolicyOptions", &s.PolicyOptions},
		"cpu-manager-policy-options":      {"cpuManagerPolicyOptions", &s.CPUOptions},
		"kube-reserved":                   {"kubeReserved", &s.KubeReserved},
		"system-reserved":                 {"systemReserved", &s.SystemReserved},
	}
	const memory = "reserved-memory"
	for flag := range flags {
		key := ""
		if text, ok := texts[flag]; ok {
			key, *text.value = text.key, flags.Last(flag)
		} else if object, ok := objects[flag]; ok {
			key, *object.value = object.key, flags.mapEntries(flag, flag != "cpu-manager-policy-options")
		} else if flag == memory {
			key, s.ReservedMemory = "reservedMemory", flags.reservedMemory(memory)
		}
		if key != "" {
			s.origin[key] = fmt.Sprintf("the kubelet's flag --%s", flag)
		}
	}
}

// ConfigFile is kubeadm's name of the kubelet's configuration, below the kubelet's folder.
const ConfigFile = "config.yaml"

// ConfigFiles are the paths of the kubelet's configuration: a file and a folder of drop-ins, "" for none.
type ConfigFiles struct {
	Config, Dir string
	Guessed     bool   // Config is kubeadm's default path, and may be missing
	Name        string // of Config, for people; "" for the path
	Root        string // prefix of the paths of a kubelet in another mount namespace, "" for none
}

// Shown returns the name of a file for people.
func (f ConfigFiles) Shown(file string) string {
	if file != f.Config {
		return file
	}
	return cmp.Or(f.Name, file)
}

// ConfigError is an error of a file of the configuration.
type ConfigError struct {
	File string
	Err  error
}

// Error returns a text with the file once.
func (e *ConfigError) Error() string {
	var path *fs.PathError
	if errors.As(e.Err, &path) {
		return fmt.Sprintf("%s: %v", e.File, path.Err) // without the second name
	}
	return fmt.Sprintf("%s: %v", e.File, e.Err)
}

// Unwrap returns the error without the file.
func (e *ConfigError) Unwrap() error { return e.Err }

// dropIns returns the drop-ins in the kubelet's order of merging (mergeKubeletConfigurations in
// cmd/kubelet/app/server.go). The error is a [ConfigError].
func (f ConfigFiles) dropIns() ([]string, error) {
	if f.Dir == "" {
		return nil, nil
	}
	var files []string
	// no walk follows a link
	dir := filepath.Join(resolvePath(f.Root, filepath.Dir(f.Dir)), filepath.Base(f.Dir))
	at := dir
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		at = path
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &ConfigError{at, err}
	}
	return files, nil
}

// maxConfigSize is the maximum size of a file of the configuration, in bytes.
const maxConfigSize = 1 << 20

// readFile reads a file of at most maxSize bytes.
func (f ConfigFiles) readFile(name string) ([]byte, error) {
	file, err := os.Open(resolvePath(f.Root, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxConfigSize+1))
	if err == nil && len(content) > maxConfigSize {
		err = fmt.Errorf("more than %d bytes", maxConfigSize)
	}
	return content, err
}

// resolvePath follows the links of a path below root as a process does whose root that is. The kernel follows
// an absolute link from the root of the reader.
func resolvePath(root, path string) string {
	rest, below := strings.CutPrefix(path, root+"/")
	if root == "" || !below {
		return path
	}
	const maxLinks = 40 // as the kernel (path_resolution(7))
	at := root
	for links := 0; rest != "" && links <= maxLinks; {
		name, after, _ := strings.Cut(rest, "/")
		target, err := os.Readlink(filepath.Join(at, name))
		switch {
		case name == "..":
			at = cmp.Or(at[:max(len(root), strings.LastIndex(at, "/"))], root)
		case err != nil:
			at = filepath.Join(at, name)
		default:
			links++
			after = target + "/" + after
			if filepath.IsAbs(target) {
				at = root
			}
		}
		rest = strings.TrimLeft(after, "/")
	}
	return at
}
