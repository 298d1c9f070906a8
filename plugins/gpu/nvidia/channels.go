// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

const channelsDir = "nvidia-caps-imex-channels"

// channel is an IMEX channel, through which GPUs of different nodes share memory.
type channel struct {
	id       string
	hostPath string // path for this process
}

func (c channel) path() string { return path.Join("/dev", channelsDir, "channel"+c.id) }

func channelIDs(channels []channel) []string {
	var ids []string
	for _, c := range channels {
		ids = append(ids, c.id)
	}
	return ids
}

// findChannels finds the configured channels, below the driver root and below devRoot. Missing channels are
// omitted, or an error if required.
func findChannels(config *settings.Config, devRoot string) ([]channel, error) {
	var found []channel
	for _, number := range config.IMEXChannels {
		c := channel{id: fmt.Sprint(number)}
		node := path.Join(channelsDir, "channel"+c.id)
		c.hostPath = path.Join(config.ContainerDriverRoot, "dev", node)
		err := isCharDevice(c.hostPath)
		if err != nil {
			c.hostPath = path.Join(devRoot, node)
			err = isCharDevice(c.hostPath)
		}
		if err == nil {
			found = append(found, c)
			continue
		}
		if config.IMEXRequired {
			return nil, fmt.Errorf("find IMEX channel %s: %w: make it (nvidia-modprobe -i 0:1), "+
				"or set imex.required to false", c.id, err)
		}
		config.Warnings = append(config.Warnings, fmt.Sprintf("IMEX channel %s is left out: %v", c.id, err))
	}
	return found, nil
}

func isCharDevice(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.Mode()&fs.ModeCharDevice == 0 {
		err = errors.New(path + " is not a character device")
	}
	return err
}
