// Command protobuf prints the protobuf messages of the built-in kinds, read from the tags of their Go structs.
//
//	go run ./protobuf | gzip -9n > ../../src/kapsa/devcluster/embedded/data/protobuf-1.36.json.gz
//
// The output has two parts: "kinds" maps apiVersion/kind to a message, "messages" maps a message to its fields by number.
// A field is [name, type, flags]: the JSON name (empty for an inlined struct), a scalar type or the name of a
// message, and the flags "r" for repeated, "m" for a map with string keys, and "p" for a field whose zero value is
// significant because Go holds a pointer.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"

	admission "k8s.io/api/admission/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes/scheme"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// special lists the types whose JSON is not that of their fields. The codec handles each by name.
var special = map[string]string{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "intorstring",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "json",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "rawextension",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "json",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "schemaorbool",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "schemaorarray",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "schemaorstrings",
}

type field [3]string

var messages = map[string]map[string]field{}

func main() {
	must(apiextensions.AddToScheme(scheme.Scheme))
	must(aggregator.AddToScheme(scheme.Scheme))
	must(admission.AddToScheme(scheme.Scheme))
	kinds := map[string]string{}
	for kind, t := range scheme.Scheme.AllKnownTypes() {
		if kind.Version == "__internal" || !hasMessage(t) {
			continue
		}
		kinds[kind.GroupVersion().String()+"/"+kind.Kind] = name(t)
		visit(t)
	}
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{"kinds": kinds, "messages": messages}))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func name(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

func hasMessage(t reflect.Type) bool {
	_, ok := reflect.PointerTo(t).MethodByName("ProtoMessage")
	_, marshals := reflect.PointerTo(t).MethodByName("MarshalToSizedBuffer")
	return ok || marshals
}

func visit(t reflect.Type) {
	if messages[name(t)] != nil || special[name(t)] != "" {
		return
	}
	fields := map[string]field{}
	messages[name(t)] = fields
	for i := range t.NumField() {
		one := t.Field(i)
		tag := strings.Split(one.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		number, err := strconv.Atoi(tag[1])
		must(err)
		jsonName, _, _ := strings.Cut(one.Tag.Get("json"), ",")
		if jsonName == "-" {
			continue
		}
		kind, flags := describe(one.Type, tag[0])
		fields[strconv.Itoa(number)] = field{jsonName, kind, flags}
	}
}

func describe(t reflect.Type, wire string) (string, string) {
	switch t.Kind() {
	case reflect.Pointer:
		kind, flags := describe(t.Elem(), wire)
		return kind, flags + "p"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes", ""
		}
		if t.Name() != "" && hasMessage(t) { // a list that is a message of its own, with its items in field 1
			kind, flags := describe(t.Elem(), wire)
			wrapper := map[string]field{"1": {"items", kind, flags + "r"}}
			messages[name(t)] = wrapper
			return name(t), "w"
		}
		kind, flags := describe(t.Elem(), wire)
		return kind, flags + "r"
	case reflect.Map:
		kind, flags := describe(t.Elem(), wire)
		return kind, flags + "m"
	case reflect.Struct:
		if as := special[name(t)]; as != "" {
			if strings.HasPrefix(as, "schema") {
				for i := range t.NumField() {
					describe(t.Field(i).Type, "bytes")
				}
			}
			return as, ""
		}
		visit(t)
		return name(t), ""
	case reflect.String:
		return "string", ""
	case reflect.Bool:
		return "bool", ""
	case reflect.Float64, reflect.Float32:
		return "double", ""
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "int", ""
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "uint", ""
	}
	panic("no protobuf type for " + t.String() + " (" + wire + ")")
}
