// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/cluster"
	"github.com/tandem-k8s/tandem/test/vm/machine"
)

// onNodeScript is the user's command for the node: the agent runs the arguments as a shell script with the
// containers' /sys.
const onNodeScript = `#!/bin/sh
# Runs a shell command on the node: on-node tandem status
answer=$(printf '%s' "unshare -m sh <<'END'
mount --rbind /run/sysroot /sys
$*
END
code=\$?; echo; echo \$code" | curl -sS --data-binary @- ` + machine.Agent + `/run)
printf '%s\n' "$answer" | sed '$d'
exit "$(printf '%s\n' "$answer" | tail -n 1)"
`

// shell runs a shell in the user's folder and returns at its end. Its exit status says nothing about Tandem.
func (t *tester) shell(ctx context.Context) error {
	if err := errors.Join(
		t.layOutUser(),
		copyTree("docs", t.Path(userFolder, "docs"), strings.NewReplacer()),
		copyTree("README.md", t.Path(userFolder, "README.md"), strings.NewReplacer()),
		os.WriteFile(t.Path(userFolder, "on-node"), []byte(onNodeScript), 0o755),
	); err != nil {
		return err
	}
	t.Say("the node is called %s, its containers find the image as %s; on-node COMMAND runs a command there;"+
		" the end of the shell is the end of the machine", cluster.NodeName, build.Image)
	cmd := exec.CommandContext(ctx, "sh", "-i")
	cmd.Dir, cmd.Env = t.Path(userFolder), t.userEnvironment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}
