"""The pipeline file that ``penstock pipeline init`` prints."""

EXAMPLE = """\
# Run it:    penstock pipeline check orders.yaml     look at it, without starting anything
#            penstock pipeline run orders.yaml       until Ctrl-C; --once: what is there, then end
#            penstock pipeline status orders.yaml    how far it is
# A value may have ${NAME} or ${NAME:-default} of the environment. Relative paths begin at this file.

pipeline: orders                    # its state is kept in state/orders

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
      select seq, ts, from_json(cast(data as string),
        'id string, customer string, amount double') as made from raw
  checked:                          # what fails is in checked.rejected, with the reasons
    from: parsed
    columns: {id: made.id, customer: made.customer, amount: made.amount}
    drop: [made]
    expect:
      has_id: id is not null
      has_amount: amount >= 0

sinks:                              # all four are fed by one reading of the stream
  orders:     {from: checked, format: jetstream_delta, path: tables/orders, mergeSchema: true}
  customers:  {from: checked, upsert: tables/customers, keys: [customer], sequence: seq}
  bad_orders: {from: checked.rejected, format: jetstream_delta, path: tables/bad_orders}
  big_orders:
    from: checked
    where: amount > 1000
    select: [to_json(struct(id, customer, amount)) as data]
    format: jetstream
    subject: big.orders
"""
