// Services: one that answers, and requests to those of others, as tools send them.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// served is a service and what its endpoints got.
type served struct {
	micro.Service
	subjects chan string
}

func init() {
	verbs["svc.add"] = addService
	verbs["svc.stop"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		err := p.services[r.ID].Stop()
		delete(p.services, r.ID)
		return nil, err
	}
	verbs["svc.reset"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		p.services[r.ID].Reset()
		return nil, nil
	}
	verbs["svc.info"] = func(p *Probe, ctx context.Context, r *Request) (any, error) {
		return p.services[r.ID].Info(), nil
	}
	verbs["svc.ask"] = askServices
	verbs["svc.request"] = requestService
}

// The endpoints of the service: echo answers with the request, its headers and its subject's last token; fail with an
// error; json with JSON; all of them below the groups that the request names.
func addService(p *Probe, ctx context.Context, r *Request) (any, error) {
	config := micro.Config{
		Name: r.Name, Version: "1.2.3", Description: r.Text, Metadata: r.Metadata,
		QueueGroup: r.Key, QueueGroupDisabled: r.has("no_queue"),
		StatsHandler: func(endpoint *micro.Endpoint) any {
			return map[string]string{"endpoint": endpoint.Name}
		},
	}
	service, err := micro.AddService(p.nc, config)
	if err != nil {
		return nil, err
	}
	group := service.AddGroup(r.Subject)
	echo := micro.HandlerFunc(func(request micro.Request) {
		headers := micro.Headers{"Subject": []string{request.Subject()}, "From": []string{service.Info().ID}}
		for name, values := range request.Headers() {
			headers[name] = values
		}
		request.Respond(request.Data(), micro.WithHeaders(headers))
	})
	fail := micro.HandlerFunc(func(request micro.Request) {
		request.Error("409", "not now: "+string(request.Data()), []byte("details"))
	})
	asJSON := micro.HandlerFunc(func(request micro.Request) {
		request.RespondJSON(map[string]any{"got": string(request.Data())})
	})
	err = errors.Join(
		group.AddEndpoint("echo", echo, micro.WithEndpointSubject("echo.*"), micro.WithEndpointMetadata(r.Metadata)),
		group.AddEndpoint("fail", fail, micro.WithEndpointQueueGroup("of-its-own")),
		group.AddGroup("deep", micro.WithGroupQueueGroup("deeper")).AddEndpoint("json", asJSON),
		group.AddEndpoint("all", echo, micro.WithEndpointQueueGroupDisabled()),
	)
	if err != nil {
		return nil, err
	}
	p.services[r.ID] = &served{Service: service}
	return service.Info(), p.nc.Flush()
}

// What `nats service` sends: a control subject, and answers until none came for a while.
func askServices(p *Probe, ctx context.Context, r *Request) (any, error) {
	kinds := map[string]micro.Verb{"PING": micro.PingVerb, "INFO": micro.InfoVerb, "STATS": micro.StatsVerb}
	subject, err := micro.ControlSubject(kinds[r.Text], r.Name, r.Key)
	if err != nil {
		return nil, err
	}
	inbox := p.nc.NewRespInbox()
	subscription, err := p.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer subscription.Unsubscribe()
	if err := p.nc.PublishRequest(subject, inbox, nil); err != nil {
		return nil, err
	}
	found := []any{}
	for len(found) < r.Count {
		message, err := subscription.NextMsg(patience)
		if err != nil {
			return nil, fmt.Errorf("only %d answers: %w", len(found), err)
		}
		if message.Header.Get("Status") == "503" {
			return found, nil
		}
		// as nats.go's own structs read it, strictly in times and numbers
		var answer any
		switch r.Text {
		case "PING":
			answer = &micro.Ping{}
		case "INFO":
			answer = &micro.Info{}
		default:
			answer = &micro.Stats{}
		}
		if err := json.Unmarshal(message.Data, answer); err != nil {
			return nil, fmt.Errorf("%w in %s", err, message.Data)
		}
		found = append(found, answer)
	}
	if extra, err := subscription.NextMsg(50 * time.Millisecond); err == nil {
		return nil, fmt.Errorf("one answer too many: %s", extra.Data)
	}
	return found, nil
}

func requestService(p *Probe, ctx context.Context, r *Request) (any, error) {
	message := nats.NewMsg(r.Subject)
	message.Data = r.Value
	for name, values := range r.Headers {
		message.Header[name] = values
	}
	answer, err := p.nc.RequestMsgWithContext(ctx, message)
	if err != nil {
		return nil, err
	}
	return map[string]any{"data": answer.Data, "headers": answer.Header}, nil
}
