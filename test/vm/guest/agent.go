// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"syscall"
)

// serveAgent runs the host's scripts, one per request, and answers with their output; the exit status is in
// the trailer.
func serveAgent() error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		script, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Trailer", "Exit-Code")
		cmd := exec.CommandContext(r.Context(), "sh", "-c", string(script))
		cmd.Stdout, cmd.Stderr = w, w
		err = cmd.Run()
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			fmt.Fprintln(w, err)
			code = 127
		}
		w.Header().Set("Exit-Code", strconv.Itoa(code))
	})
	mux.HandleFunc("POST /reboot", func(http.ResponseWriter, *http.Request) {
		syscall.Sync()
		tell("reboot: %v", syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART))
	})
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	tell("ready")
	return http.Serve(listener, mux)
}
