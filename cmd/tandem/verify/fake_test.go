// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakes is the behaviour of the fake perftest, in the variable FAKES.
type fakes struct {
	Help    string            // further options
	Gbps    map[string]string // by RDMA device of the client and of the server, "mlx5_0 mlx5_1"; default 100
	Fail    map[string]string // text of a device's error
	NoGPU   bool              // the latency test does not support a GPU's memory
	ROCmBus string            // PCI bus of the GPU
	Hang    bool              // clients never end
}

// install puts the fake programs into PATH and returns their environment.
func (f fakes) install(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	ready(t, err)
	dir := t.TempDir()
	for _, name := range []string{bandwidthProgram, latencyProgram} {
		ready(t, os.Symlink(self, filepath.Join(dir, name)))
	}
	t.Setenv("PATH", dir)
	text, err := json.Marshal(f)
	ready(t, err)
	return []string{"FAKES=" + string(text)}
}

// perftest behaves like a program of perftest: the server listens on its TCP port, and both sides print the
// result of the client. It returns the exit code.
func perftest(name string, arguments []string) int {
	var f fakes
	if err := json.Unmarshal([]byte(os.Getenv("FAKES")), &f); err != nil {
		return fail(err.Error())
	}
	if slices.Contains(arguments, "--help") {
		fmt.Fprintln(os.Stdout, "  -d, --ib-dev=<dev>\n  -s, --size=<size>\n"+f.Help)
		return 1
	}
	device := value(arguments, "-d")
	gpu := slices.ContainsFunc(arguments, func(s string) bool { return strings.HasPrefix(s, "--use_") })
	switch {
	case f.Fail[device] != "":
		return fail(f.Fail[device])
	case gpu && f.NoGPU && name == latencyProgram:
		return fail(" Perftest supports CUDA only in BW tests")
	case gpu && f.ROCmBus != "":
		fmt.Fprintf(os.Stdout, "Using ROCm Device with ID: 0, Name: x, PCI Bus ID: 0x%s, GCN Arch: gfx942\n",
			f.ROCmBus)
	}
	client := arguments[len(arguments)-1] == "127.0.0.1"
	peer, err := exchange(device, "127.0.0.1:"+value(arguments, "-p"), client)
	if err != nil {
		return fail(err.Error())
	}
	if f.Hang {
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, syscall.SIGTERM)
		<-interrupted
		return fail("terminated")
	}
	f.print(name, peer)
	return 0
}

// message is an error in perftest's words.
type message string

func (m message) Error() string { return string(m) }

func fail(text string) int {
	fmt.Fprintln(os.Stderr, text)
	return 1
}

func value(arguments []string, option string) string {
	return arguments[slices.Index(arguments, option)+1]
}

// exchange exchanges the names of the devices, and returns those of client and server.
func exchange(device, address string, client bool) (string, error) {
	var conn net.Conn
	var err error
	if client {
		if conn, err = net.DialTimeout("tcp", address, time.Second); err != nil {
			return "", message("Couldn't connect to " + address)
		}
	} else {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return "", message("Couldn't listen to port " + address)
		}
		conn, err = listener.Accept()
		if err = errors.Join(err, listener.Close()); err != nil {
			return "", err
		}
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, device+"\n"); err != nil {
		return "", err
	}
	peer, err := bufio.NewReader(conn).ReadString('\n')
	peer = strings.TrimSpace(peer)
	if client {
		return device + " " + peer, err
	}
	return peer + " " + device, err
}

func (f fakes) print(name, devices string) {
	if name == latencyProgram {
		fmt.Fprintln(os.Stdout, " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    "+
			"t_avg[usec]\n"+
			" 8       1000          1.5        9.5      2.25  	       2.5 ")
		return
	}
	gbps := f.Gbps[devices]
	if gbps == "" {
		gbps = "100.00"
	}
	fmt.Fprintf(os.Stdout, " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"+
		" 1048576    5000           0.00            %s             0.02\n", gbps)
}
