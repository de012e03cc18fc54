// Command zeros prints the empty object of every built-in kind as JSON: what its Go struct writes when nothing is set.
//
// A create compares the new object with this one to record who owns which fields, so a struct that is always
// written (spec, status, a pod template's metadata) is owned through its fields and not by its own path.
//
//	go run ./zeros > ../../src/kapsa/devcluster/embedded/data/zeros-1.36.json
package main

import (
	"encoding/json"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func main() {
	for _, add := range []func() error{
		func() error { return apiextensions.AddToScheme(scheme.Scheme) },
		func() error { return aggregator.AddToScheme(scheme.Scheme) },
	} {
		if err := add(); err != nil {
			panic(err)
		}
	}
	found := map[string]map[string]any{}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if zero := zeroOf(gvk); len(zero) > 0 {
			found[gvk.GroupVersion().String()+"/"+gvk.Kind] = zero
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}

// zeroOf is nil for what is no stored object (lists, options), and for kinds that are only metadata.
func zeroOf(gvk schema.GroupVersionKind) map[string]any {
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		panic(err)
	}
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	zero := map[string]any{}
	if err := json.Unmarshal(raw, &zero); err != nil {
		return nil
	}
	if metadata, ok := zero["metadata"].(map[string]any); !ok || len(metadata) > 0 {
		return nil
	}
	if _, isList := zero["items"]; isList {
		return nil
	}
	delete(zero, "metadata")
	return zero
}
