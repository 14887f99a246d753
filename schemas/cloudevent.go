package schemas

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// isCloudEvent reports whether a content type is that of a structured CloudEvent in JSON.
func isCloudEvent(contentType []byte) bool {
	media, _, _ := bytes.Cut(contentType, []byte(";"))
	return bytes.EqualFold(bytes.TrimSpace(media), []byte(ContentTypeCloudEvent))
}

// openCloudEvent finds the record in a structured CloudEvent: the object under `data`, or whatever stands in base64 under
// `data_base64`.
func (l jsonLimits) openCloudEvent(value []byte) (wireForm, error) {
	outer, err := l.formFromValue(value)
	if err != nil {
		return wireForm{}, err
	}
	if outer.encoding != EncodingJSON {
		return wireForm{}, Errorf(CodeUndecodable, "the content type is that of a CloudEvent, but the value is no JSON")
	}
	var version string
	var data, encoded []byte
	twice := make(map[string]bool)
	repeated := false
	eachMember(outer.payload, func(key string, v []byte) {
		switch key {
		case "specversion":
			version = string(v)
		case "data":
			data = v
		case "data_base64":
			encoded = v
		default:
			return
		}
		repeated = repeated || twice[key]
		twice[key] = true
	})
	switch {
	case repeated:
		return wireForm{}, Errorf(CodeUndecodable, "an attribute of the CloudEvent is given twice")
	case !strings.HasPrefix(version, `"1.`):
		return wireForm{}, Errorf(CodeUndecodable, "the CloudEvent is not of version 1.0")
	case data != nil && encoded != nil:
		return wireForm{}, Errorf(CodeUndecodable, "the CloudEvent has both data and data_base64")
	case data != nil && data[0] == '{':
		return wireForm{encoding: EncodingJSON, payload: data}, nil
	case encoded != nil && encoded[0] == '"':
		inner, err := base64.StdEncoding.DecodeString(unquoteJSON(encoded))
		if err != nil || len(inner) == 0 {
			return wireForm{}, Errorf(CodeUndecodable, "data_base64 of the CloudEvent is not base64")
		}
		return l.formFromValue(inner)
	}
	return wireForm{}, Errorf(CodeUndecodable, "the CloudEvent has no data that is an object")
}
