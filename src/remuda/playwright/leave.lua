-- Takes a worker that ends, or was killed, out of the book, with what is left of its connections: they end with it.
-- ARGV[1] worker
-- ARGV[2] seconds for which a new worker is waited for

local worker = ARGV[1]
local was_here = call('ZSCORE', WORKERS, worker) or call('EXISTS', key_of(worker)) == 1
for _, connection in ipairs(call('ZRANGE', connections_of(worker), 0, -1)) do
  call('ZREM', LEASES, worker .. '/' .. connection)
  call('HDEL', ORIGINS, connection)
end
call('DEL', key_of(worker))
call('HDEL', ACTIVE, field(worker))
call('HDEL', LIFETIME, field(worker))
call('DEL', connections_of(worker), string.format(KEYS[15], worker))
-- One that was replaced while it still drained leaves no vacancy, nor does one that never came or has left before.
if call('ZSCORE', LEAVING, worker) or not was_here then
  call('ZADD', VACANT, 'XX', now + ARGV[2], worker)
else
  call('ZADD', VACANT, now + ARGV[2], worker)
end
forget(worker)
return nil
