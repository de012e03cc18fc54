// A load generator that does nothing else: n requests of one kind over c connections, or one change fanned out to
// w watchers. It prints one JSON line: how many were answered well, how many were not, and the seconds it took.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	collection  = "/apis/bench.kapsa.dev/v1/namespaces/default/samples"
	deployments = "/apis/apps/v1/namespaces/default/deployments"
	services    = "/api/v1/namespaces/default/services"
)

var (
	server      = flag.String("server", "", "URL of the API server")
	authority   = flag.String("ca", "", "file of the CA certificate")
	certificate = flag.String("cert", "", "file of the client certificate")
	key         = flag.String("key", "", "file of the client key")
	tokenFile   = flag.String("token", "", "file of a bearer token, instead of a client certificate")
	operation   = flag.String("op", "create", "create, get, list, watch, owned (two children and a status), or a status write: done, status, status-put, status-apply")
	count       = flag.Int("n", 1000, "how many requests")
	connections = flag.Int("c", 32, "how many at once")
	watchers    = flag.Int("w", 20, "watchers, for op=watch")
	prefix      = flag.String("prefix", "sample", "names are PREFIX-0, PREFIX-1, ...")
)

func main() {
	flag.Parse()
	client := newClient()
	var result map[string]any
	if *operation == "watch" {
		result = fanOut(client)
	} else {
		if *operation == "status-put" || *operation == "owned" {
			remember(client)
		}
		result = requests(client)
	}
	json.NewEncoder(os.Stdout).Encode(result)
}

func newClient() *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: *connections + *watchers, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	if *authority != "" {
		pem, err := os.ReadFile(*authority)
		must(err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
		if *certificate != "" {
			pair, err := tls.LoadX509KeyPair(*certificate, *key)
			must(err)
			transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
		}
	}
	if *tokenFile == "" {
		return &http.Client{Transport: transport}
	}
	token, err := os.ReadFile(*tokenFile)
	must(err)
	return &http.Client{Transport: bearer{"Bearer " + string(token), transport}}
}

// bearer shows a token with each request.
type bearer struct {
	authorization string
	next          http.RoundTripper
}

func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request.Header.Set("Authorization", b.authorization) // every request is ours alone
	return b.next.RoundTrip(request)
}

func requests(client *http.Client) map[string]any {
	var next, failed atomic.Int64
	var group sync.WaitGroup
	started := time.Now()
	for range *connections {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := next.Add(1) - 1; i < int64(*count); i = next.Add(1) - 1 {
				if !send(client, *operation, i) {
					failed.Add(1)
				}
			}
		}()
	}
	group.Wait()
	seconds := time.Since(started).Seconds()
	return map[string]any{"ok": int64(*count) - failed.Load(), "failed": failed.Load(), "seconds": seconds}
}

func send(client *http.Client, operation string, i int64) bool {
	name := fmt.Sprintf("%s-%d", *prefix, i)
	switch operation {
	case "create":
		body := fmt.Sprintf(`{"apiVersion":"bench.kapsa.dev/v1","kind":"Sample","metadata":{"name":"%s"},"spec":{"value":1}}`, name)
		return call(client, "POST", collection, "application/json", body)
	case "get":
		return call(client, "GET", collection+"/"+name, "", "")
	case "done":
		body := `{"status":{"value":1,"observedGeneration":1}}`
		return call(client, "PATCH", collection+"/"+name+"/status", "application/merge-patch+json", body)
	case "status":
		body := fmt.Sprintf(`{"status":{"value":%d}}`, time.Now().UnixNano())
		return call(client, "PATCH", collection+"/"+name+"/status", "application/merge-patch+json", body)
	case "owned":
		uid := known[name]["metadata"].(map[string]any)["uid"]
		owner := fmt.Sprintf(`"ownerReferences":[{"apiVersion":"bench.kapsa.dev/v1","kind":"Sample","name":"%s","uid":"%s","controller":true,"blockOwnerDeletion":true}]`, name, uid)
		deployment := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"%s",%s},"spec":{"selector":{"matchLabels":{"app":"%s"}},"template":{"metadata":{"labels":{"app":"%s"}},"spec":{"containers":[{"name":"app","image":"example.com/app:1"}]}}}}`, name, owner, name, name)
		service := fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"%s",%s},"spec":{"clusterIP":"None","selector":{"app":"%s"},"ports":[{"port":80,"targetPort":80}]}}`, name, owner, name)
		return apply(client, deployments+"/"+name, deployment) && apply(client, services+"/"+name, service) && send(client, "done", i)
	case "status-apply":
		body := fmt.Sprintf(`{"apiVersion":"bench.kapsa.dev/v1","kind":"Sample","metadata":{"name":"%s"},"status":{"value":%d}}`, name, time.Now().UnixNano())
		return apply(client, collection+"/"+name+"/status", body)
	case "status-put":
		sample := known[name]
		sample["status"] = map[string]any{"value": time.Now().UnixNano()}
		body, err := json.Marshal(sample)
		must(err)
		return call(client, "PUT", collection+"/"+name+"/status", "application/json", string(body))
	case "list":
		return call(client, "GET", collection, "", "")
	}
	panic("unknown operation " + operation)
}

func apply(client *http.Client, path, body string) bool {
	return call(client, "PATCH", path+"?fieldManager=load&fieldValidation=Ignore&force=true", "application/apply-patch+yaml", body)
}

// known are the samples as they were before the first write: a PUT sends the whole object with its version, and a child
// names its owner's UID.
var known = map[string]map[string]any{}

func remember(client *http.Client) {
	response, err := client.Get(*server + collection)
	must(err)
	defer response.Body.Close()
	var list struct{ Items []map[string]any }
	must(json.NewDecoder(response.Body).Decode(&list))
	for _, sample := range list.Items {
		known[sample["metadata"].(map[string]any)["name"].(string)] = sample
	}
}

func call(client *http.Client, method, path, contentType, body string) bool {
	request, err := http.NewRequest(method, *server+path, bytes.NewReader([]byte(body)))
	must(err)
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode < 300
}

// fanOut opens the watchers, changes one object n times, and ends when every watcher has seen every change.
func fanOut(client *http.Client) map[string]any {
	var ready, done sync.WaitGroup
	for range *watchers {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			response, err := client.Get(*server + collection + "?watch=true&resourceVersion=0&fieldSelector=metadata.name%3D" + *prefix + "-0")
			must(err)
			defer response.Body.Close()
			lines := bufio.NewReaderSize(response.Body, 1<<16)
			for seen := -1; seen < *count; seen++ {
				line, err := lines.ReadString('\n')
				must(err)
				if !strings.HasPrefix(line, `{"type"`) {
					seen--
				}
				if seen == -1 {
					ready.Done()
				}
			}
		}()
	}
	ready.Wait()
	started := time.Now()
	for i := range *count {
		body := fmt.Sprintf(`{"spec":{"value":%d}}`, i+2)
		if !call(client, "PATCH", collection+"/"+*prefix+"-0", "application/merge-patch+json", body) {
			must(fmt.Errorf("change %d was refused", i))
		}
	}
	done.Wait()
	return map[string]any{"ok": *count * *watchers, "failed": 0, "seconds": time.Since(started).Seconds()}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
