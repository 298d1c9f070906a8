// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// Settings are the settings that Tandem reads: keys of KubeletConfiguration (k8s.io/kubelet/config/v1beta1).
type Settings struct {
	Files                []string          `json:"-"` // files with settings, in the kubelet's order
	at                   ConfigFiles       // the files that were read
	origin               map[string]string // source of each key, a file or flag
	Policy               string            `json:"topologyManagerPolicy"`
	Scope                string            `json:"topologyManagerScope"`
	PolicyOptions        map[string]string `json:"topologyManagerPolicyOptions,omitempty"`
	CPUPolicy            string            `json:"cpuManagerPolicy"`
	CPUOptions           map[string]string `json:"cpuManagerPolicyOptions,omitempty"`
	ReservedCPUs         string            `json:"reservedSystemCPUs,omitempty"`
	KubeReserved         map[string]string `json:"kubeReserved,omitempty"`
	KubeReservedCgroup   string            `json:"kubeReservedCgroup,omitempty"`
	SystemReserved       map[string]string `json:"systemReserved,omitempty"`
	SystemReservedCgroup string            `json:"systemReservedCgroup,omitempty"`
	MemoryPolicy         string            `json:"memoryManagerPolicy"`
	ReservedMemory       []any             `json:"reservedMemory,omitempty"` // one for each NUMA node
}

// setDefaults sets what no file sets (SetDefaults_KubeletConfiguration in pkg/kubelet/apis/config/v1beta1).
func (s *Settings) setDefaults() {
	s.Policy, s.Scope = cmp.Or(s.Policy, "none"), cmp.Or(s.Scope, "container")
	s.CPUPolicy, s.MemoryPolicy = cmp.Or(s.CPUPolicy, "none"), cmp.Or(s.MemoryPolicy, "None")
}

// ReadSettings merges files and flags as the kubelet does; nil are unknown flags. The error of a file is a
// [ConfigError].
func ReadSettings(f ConfigFiles, flags Flags) (Settings, error) {
	s := Settings{at: f, origin: map[string]string{}}
	if f.Config == "" && flags == nil {
		return s, errors.New("read the kubelet's configuration: neither its file nor its flags are known")
	}
	if f.Config != "" {
		file, err := s.parseFile(f.Config)
		if err == nil {
			err = file.decodeInto(&s)
			s.setOrigins(f.Config, file, func(key, name string) bool { return key == name })
		}
		if err != nil && (!f.Guessed || !errors.Is(err, fs.ErrNotExist)) {
			return Settings{}, &ConfigError{f.Config, err}
		}
	}
	s.setDefaults()
	dropIns, err := f.dropIns()
	if err != nil {
		return Settings{}, err
	}
	if err := s.mergeDropIns(dropIns); err != nil {
		return Settings{}, err
	}
	s.applyFlags(flags)
	if len(s.Files) == 0 && f.Config != "" && !(f.Guessed && f.Dir != "") {
		return Settings{}, &ConfigError{f.Config, fs.ErrNotExist}
	}
	return s, nil
}

// mergeDropIns merges drop-ins.
func (s *Settings) mergeDropIns(dropIns []string) error {
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	merged := map[string]any{}
	if err := json.Unmarshal(content, &merged); err != nil {
		return err
	}
	for _, name := range dropIns {
		file, err := s.parseFile(name)
		if err != nil {
			return &ConfigError{name, err}
		}
		next, err := file.mergeInto(merged)
		if err != nil {
			return &ConfigError{name, err}
		}
		next.setDefaults()
		next.Files, next.at, next.origin = s.Files, s.at, s.origin
		*s = next
		s.setOrigins(name, file, func(key, name string) bool { return key >= name && strings.EqualFold(key, name) })
	}
	return nil
}

func (s *Settings) parseFile(name string) (configObject, error) {
	content, err := s.at.readFile(name)
	if err != nil {
		return configObject{}, err
	}
	return parseConfig(content)
}

// setOrigins notes the settings that a file sets: keys that are read as the name of a setting.
func (s *Settings) setOrigins(name string, file configObject, isRead func(key, name string) bool) {
	s.Files = append(s.Files, name)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Settings]()) {
		setting, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		for key := range file.keyNodes() {
			if isRead(key, setting) {
				s.origin[setting] = name
			}
		}
	}
}

// ParseConfigz reads the kubelet's own answer to /configz, with its defaults and flags (installConfigz in
// pkg/kubelet/server).
func ParseConfigz(configz []byte) (Settings, error) {
	answer := struct {
		Settings *Settings `json:"kubeletconfig"`
	}{}
	if err := json.Unmarshal(configz, &answer); err != nil {
		return Settings{}, fmt.Errorf("parse the kubelet's /configz: %w", err)
	}
	if answer.Settings == nil || answer.Settings.Policy == "" {
		return Settings{}, errors.New("parse the kubelet's /configz: it has no topologyManagerPolicy")
	}
	return *answer.Settings, nil
}

// Origin returns the file or flag that sets a key, "" for none.
func (s *Settings) Origin(key string) string { return s.origin[key] }

// Says returns the evidence for a key: the source of the value, or the default, if there is one.
func (s *Settings) Says(key string, value any) string {
	if origin, ok := s.origin[key]; ok {
		return fmt.Sprintf("%s: %s: %v", s.at.Shown(origin), key, value)
	}
	unset := fmt.Sprintf("%s: %s is not set", s.Sources(), key)
	if value == "" {
		return unset
	}
	return fmt.Sprintf("%s, the default is %v", unset, value)
}

// Sources returns the files, for people, or the command line of a kubelet without files.
func (s *Settings) Sources() string {
	var names []string
	for _, file := range s.Files {
		names = append(names, s.at.Shown(file))
	}
	return cmp.Or(strings.Join(names, ", "), "the kubelet's command line")
}

// Model returns the settings that decide admissions. CPUs that are reserved only by number are counted like
// in the kubelet (NewManager in pkg/kubelet/cm/cpumanager/cpu_manager.go).
func (s *Settings) Model() (k model.Kubelet, err error) {
	k = model.Kubelet{
		TopologyManagerPolicy: s.Policy, TopologyManagerScope: s.Scope,
		TopologyManagerPolicyOptions: s.PolicyOptions,
		CPUManagerPolicy:             s.CPUPolicy, CPUManagerPolicyOptions: s.CPUOptions,
		ReservedSystemCPUs: s.ReservedCPUs, MemoryManagerPolicy: s.MemoryPolicy,
	}
	if k.CPUManagerPolicy == "static" && k.ReservedSystemCPUs == "" {
		k.ReservedCPUs, err = s.ReservedAmount()
	}
	return k, err
}

// ReservedAmount returns the number of CPUs in kubeReserved and systemReserved (NewManager in
// pkg/kubelet/cm/cpumanager). An invalid quantity is an error: the kubelet does not start with it.
func (s *Settings) ReservedAmount() (int, error) {
	var milli int64
	for key, reserved := range map[string]map[string]string{
		"kubeReserved": s.KubeReserved, "systemReserved": s.SystemReserved,
	} {
		text, given := reserved["cpu"]
		if !given {
			continue
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return 0, fmt.Errorf("read %s, cpu %q: %w", key, text, err)
		}
		milli += quantity.MilliValue()
	}
	const core = 1000
	return int((milli + core - 1) / core), nil
}
