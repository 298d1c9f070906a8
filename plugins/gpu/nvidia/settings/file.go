// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"sigs.k8s.io/yaml"
)

// file is a configuration file of NVIDIA's own plugin, version v1 (api/config/v1 in
// NVIDIA/k8s-device-plugin). Other keys are ignored as in that plugin: useNodeFeatureAPI and gfd are for
// another program that reads the same file.
type file struct {
	Version string `json:"version"`
	Flags   struct {
		MIGStrategy     *string `json:"migStrategy"`
		FailOnInitError *bool   `json:"failOnInitError"`
		MPSRoot         *string `json:"mpsRoot"`
		DriverRoot      *string `json:"nvidiaDriverRoot"`
		DevRoot         *string `json:"nvidiaDevRoot"`
		GDRCopy         *bool   `json:"gdrcopyEnabled"`
		GDS             *bool   `json:"gdsEnabled"`
		MOFED           *bool   `json:"mofedEnabled"`
		Discovery       *string `json:"deviceDiscoveryStrategy"`
		Plugin          struct {
			PassDeviceSpecs     *bool     `json:"passDeviceSpecs"`
			DeviceList          oneOrMany `json:"deviceListStrategy"`
			DeviceID            *string   `json:"deviceIDStrategy"`
			AnnotationPrefix    *string   `json:"cdiAnnotationPrefix"`
			CTKPath             *string   `json:"nvidiaCTKPath"`
			ContainerDriverRoot *string   `json:"containerDriverRoot"`
			SharedPolicy        *string   `json:"sharedDevicesAllocationPolicy"`
		} `json:"plugin"`
	} `json:"flags"`
	Resources struct {
		GPUs []json.RawMessage `json:"gpus"`
		MIGs []json.RawMessage `json:"mig"`
	} `json:"resources"`
	Sharing struct {
		TimeSlicing *replicated `json:"timeSlicing"`
		MPS         *replicated `json:"mps"`
	} `json:"sharing"`
	IMEX imex `json:"imex"`
}

type imex struct {
	ChannelIDs []int `json:"channelIDs"`
	Required   *bool `json:"required"`
}

func (i imex) channels() []string {
	var list []string
	for _, id := range i.ChannelIDs {
		list = append(list, strconv.Itoa(id))
	}
	return list
}

// oneOrMany is a string or a list of strings.
type oneOrMany []string

// UnmarshalJSON accepts both, and null for an absent value.
func (o *oneOrMany) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	var one string
	if json.Unmarshal(text, &one) == nil {
		*o = []string{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(text, &many); err != nil {
		return fmt.Errorf("%s is neither a string nor a list of strings", text)
	}
	*o = many
	return nil
}

// version is the only supported version.
const version = "v1"

func readFile(path string) (*file, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	f := &file{Version: version}
	if err := yaml.Unmarshal(content, f); err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	if f.Version != version && f.Version != "" {
		return nil, fmt.Errorf("read the configuration %s: version is %q: want %s", path, f.Version, version)
	}
	return f, nil
}

// sharing returns the sharing of the file, with warnings of settings without effect.
func (f *file) sharing(path string) (Sharing, []string, error) {
	switch {
	case f.Sharing.MPS != nil:
		return Sharing{}, nil, fmt.Errorf("read the configuration %s: sharing.mps is not supported: "+
			"use sharing.timeSlicing, or NVIDIA's own plugin on this node", path)
	case f.Sharing.TimeSlicing == nil:
		return Sharing{}, nil, nil
	default:
		return f.Sharing.TimeSlicing.sharing(path)
	}
}
