// Command structs prints how the Go structs of the built-in kinds are written as JSON, by OpenAPI definition:
// which fields are there even when nobody set them ("always", with what they are then), and which ones are left
// out when they are empty ("omitted").
//
//	go run ./structs | gzip -9n > ../../src/kapsa/devcluster/embedded/data/structs-1.36.json.gz
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes/scheme"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type model struct {
	Always  map[string]any `json:"always,omitempty"`
	Omitted []string       `json:"omitted,omitempty"`
}

type named interface{ OpenAPIModelName() string }

var found = map[string]*model{}

func main() {
	must(apiextensions.AddToScheme(scheme.Scheme))
	must(aggregator.AddToScheme(scheme.Scheme))
	for _, kind := range scheme.Scheme.AllKnownTypes() {
		visit(kind)
	}
	for name, one := range found {
		if len(one.Always) == 0 && len(one.Omitted) == 0 {
			delete(found, name)
		}
	}
	must(json.NewEncoder(os.Stdout).Encode(found))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// visit describes the struct and all that it holds.
func visit(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		visit(t.Elem())
	case reflect.Struct:
		name := nameOf(t)
		if name == "" || found[name] != nil || writesItself(t) {
			return
		}
		found[name] = &model{Always: map[string]any{}}
		describe(found[name], t)
	}
}

func nameOf(t reflect.Type) string {
	if one, ok := reflect.New(t).Elem().Interface().(named); ok {
		return one.OpenAPIModelName()
	}
	return ""
}

func writesItself(t reflect.Type) bool {
	marshaler := reflect.TypeFor[json.Marshaler]()
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

func describe(into *model, t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		if name == "" && field.Anonymous {
			describe(into, field.Type)
			continue
		}
		visit(field.Type)
		omitEmpty := strings.Contains(options, "omitempty")
		zero := written(field.Type)
		switch {
		case strings.Contains(options, "omitzero"):
		case !omitEmpty || field.Type.Kind() == reflect.Struct:
			into.Always[name] = zero
		case field.Type.Kind() != reflect.Pointer && field.Type.Kind() != reflect.Interface:
			into.Omitted = append(into.Omitted, name)
		}
	}
}

// written is what an unset field of this type looks like; the fields of a struct are its own model's matter.
func written(t reflect.Type) any {
	if t.Kind() == reflect.Struct && !writesItself(t) {
		return map[string]any{}
	}
	raw, err := json.Marshal(reflect.New(t).Interface())
	must(err)
	var value any
	must(json.Unmarshal(raw, &value))
	return value
}
