package metrics_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// prom is a real Prometheus.
type prom struct{ url string }

// scrape is what it scrapes, and how.
type scrape struct {
	endpoint map[string]any // of the ServiceMonitor
	token    string
	targets  []map[string]any // static_configs
}

// startPrometheus starts a Prometheus that scrapes and evaluates each second.
func startPrometheus(t *testing.T, s scrape, rules []byte) *prom {
	t.Helper()
	program := toolchain.Installed(t, "prometheus")
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	config, err := yaml.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{write("rules.yaml", rules)},
		"scrape_configs": []map[string]any{{
			"job_name": "vdo-operator-metrics", "scheme": s.endpoint["scheme"], "metrics_path": s.endpoint["path"],
			"authorization":  map[string]any{"credentials_file": write("token", []byte(s.token))},
			"tls_config":     map[string]any{"insecure_skip_verify": s.endpoint["tlsConfig"].(map[string]any)["insecureSkipVerify"]}, //nolint:forcetypeassert // the file is ours
			"static_configs": s.targets,
		}},
	})
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	address := free(t)
	cmd := exec.Command(program, "--config.file="+write("prometheus.yaml", config), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("Prometheus:\n%s", text)
		}
	})
	p := &prom{url: "http://" + address}
	require.Eventually(t, func() bool {
		res, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, time.Minute, 100*time.Millisecond)
	return p
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// get asks the API and puts its data into out.
func (p *prom) get(path string, query url.Values, out any) error {
	res, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return json.Unmarshal(answer.Data, out)
}

// sample is a value of a query, with its labels.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s sample) value() string { return fmt.Sprint(s.Value[1]) }

// query evaluates an expression now.
func (p *prom) query(expr string) ([]sample, error) {
	var data struct{ Result []sample }
	err := p.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// scrapes returns how often the endpoints were scraped.
func (p *prom) scrapes(t *testing.T) float64 {
	t.Helper()
	got, err := p.query("sum(count_over_time(up[1h]))")
	require.NoError(t, err)
	require.Len(t, got, 1)
	n, err := strconv.ParseFloat(got[0].value(), 64)
	require.NoError(t, err)
	return n
}

// firing returns the alerts that fire, by resource ("" where there is none), sorted by
// Prometheus's own order and each as often as it fires.
func (p *prom) firing() (map[string][]string, error) {
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	if err := p.get("/api/v1/alerts", nil, &data); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			out[a.Labels["name"]] = append(out[a.Labels["name"]], a.Labels["alertname"])
		}
	}
	return out, nil
}

// rule is one alert of a rule file.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ruleFile is the spec of a PrometheusRule.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

func monitoring(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(toolchain.Root(), "deploy", "monitoring", name))
	require.NoError(t, err)
	return data
}

func rules(t *testing.T) ruleFile {
	t.Helper()
	var of struct {
		Spec ruleFile `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(monitoring(t, "rules.yaml"), &of))
	require.NotEmpty(t, of.Spec.Groups)
	return of.Spec
}

// atOnce are the rules without the time that a condition has to last.
func (f ruleFile) atOnce(t *testing.T) []byte {
	t.Helper()
	for _, g := range f.Groups {
		for i := range g.Rules {
			g.Rules[i].For = ""
		}
	}
	data, err := yaml.Marshal(f)
	require.NoError(t, err)
	return data
}

// all are the rules by alert.
func (f ruleFile) all() map[string]rule {
	out := map[string]rule{}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			out[r.Alert] = r
		}
	}
	return out
}

// dashboard is what the test reads of the dashboard.
type dashboard struct {
	UID        string
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	Datasource  map[string]string
	GridPos     map[string]int
	Targets     []struct {
		RefID, Expr string
		Datasource  map[string]string
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	require.NoError(t, json.Unmarshal(monitoring(t, "dashboard.json"), &d))
	return d
}

// expression is a panel's as Grafana would send it.
func expression(s string) string { return strings.ReplaceAll(s, "$__rate_interval", "1m") }
