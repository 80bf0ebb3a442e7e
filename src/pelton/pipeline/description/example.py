"""The pipeline file that ``pelton pipeline init`` prints."""

EXAMPLE = """\
# Commands:  pelton pipeline check orders.yaml     find faults, without starting anything
#            pelton pipeline test orders.yaml      run the tests below, without a server
#            pelton pipeline run orders.yaml       run until Ctrl-C; --once: until all input is read
#            pelton pipeline status orders.yaml    show the progress
# Values may use environment variables: ${NAME}, ${NAME:-default}. Relative paths start at this file.

pipeline: orders                    # the state folder is state/orders

defaults:
  servers: ${NATS_URL:-nats://127.0.0.1:4222}
  # creds: /etc/nats/pipeline.creds
  trigger: 1s                       # look for new rows at most this often

sources:
  raw: {format: jetstream, stream: ORDERS}          # any format of Spark; other keys are its options

steps:
  parsed:                           # order: sql, python, watermark, where, columns, select, drop, expect
    from: raw
    sql: >
      select seq, ts, data, from_json(cast(data as string),
        'id string, customer string, amount double') as made from raw
  checked:                          # rows that fail are in checked.rejected, with reasons
    from: parsed                    # and with data, from which they can be made again
    columns: {id: made.id, customer: made.customer, amount: made.amount}
    drop: [made]
    expect:
      is_json: try_parse_json(cast(data as string)) is not null
      has_ids: id is not null and customer is not null
      has_amount: amount >= 0

  good: {from: checked, drop: [data]}

sinks:                              # one read of the stream feeds them all
  orders:     {from: good, format: jetstream_delta, path: tables/orders, mergeSchema: true}
  customers:  {from: good, upsert: tables/customers, keys: [customer], sequence: seq}
  bad_orders: {from: checked.rejected, format: jetstream_delta, path: tables/bad_orders}
  # A stream takes rows, too, once it is there: pelton stream add BIG --subjects 'big.>' --defaults
  # big_orders:
  #   from: good
  #   where: amount > 1000
  #   select: [to_json(struct(id, customer, amount)) as data]
  #   format: jetstream
  #   subject: big.orders

tests:                              # messages that are given, and the rows that must come of them
  orders are checked:
    given:
      raw:                          # pelton pipeline sample orders.yaml writes real ones into a file
        - {seq: 1, data: {id: a1, customer: ann, amount: 12.5}}
        - {seq: 2, data: {id: a2, customer: ann, amount: 20}}
        - {seq: 3, data: {id: a3, customer: bob}}
        - not json
    expect:                         # only the columns that are named are compared
      orders: [{id: a1, amount: 12.5}, {id: a2}]
      customers: [{customer: ann, seq: 2}]
      bad_orders:
        - {seq: 3, rejected_because: [has_amount]}
        - {seq: 4, data: not json, rejected_because: [is_json, has_ids, has_amount]}
"""
