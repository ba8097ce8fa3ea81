package scale

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// seen is what the program tells: see its package comment.
type seen struct {
	Requests            map[string]int
	Passes, PassSeconds float64
}

// process is a running operator.
type process struct {
	b       testing.TB
	cmd     *exec.Cmd
	address string
}

func startOperator(b testing.TB, kubeconfig, log string) *process {
	b.Helper()
	dir := b.TempDir()
	require.NoError(b, toolchain.Programs(b.Context(), dir, "./operator/internal/scale/program"))
	p := &process{b: b, cmd: exec.Command(filepath.Join(dir, "program"), kubeconfig)} //nolint:gosec // of the project
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	require.NoError(b, err)
	p.cmd.Stderr, err = os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // of the benchmark
	require.NoError(b, err)
	require.NoError(b, p.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	p.address = strings.TrimSpace(line)
	return p
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	_ = p.cmd.Wait()                          //nolint:errcheck // likewise
}

func (p *process) get(path string) []byte {
	resp, err := http.Get("http://" + p.address + path) //nolint:noctx // of a benchmark
	require.NoError(p.b, err)
	defer resp.Body.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(resp.Body)
	require.NoError(p.b, err)
	return data
}

func (p *process) seen() seen {
	var s seen
	require.NoError(p.b, json.Unmarshal(p.get("/seen"), &s))
	return s
}

// cpu is the processor time that the process has had.
func (p *process) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	require.NoError(p.b, err)
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		require.NoError(p.b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// memory is a line of the process's status, in MiB: VmRSS is what is resident, VmHWM what was at most.
func (p *process) memory(name string) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(p.b, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(p.b, err)
			return float64(kib) / 1024
		}
	}
	p.b.Fatalf("no %s", name)
	return 0
}

// forgetPeak has VmHWM count from now on: proc(5), clear_refs.
func (p *process) forgetPeak() {
	require.NoError(p.b, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0o200))
}
