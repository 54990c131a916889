-- Keeps connections counted that go on. One that Redis does not know (any more) is counted again: it is real.
-- ARGV[1] concurrent, MAX_CONCURRENT_SESSIONS
-- ARGV[2] lease, in seconds
-- ARGV[3..] connections, that is, worker, connection, when it began, and its origin, for each
-- returns how many Redis did not know

places = tonumber(ARGV[1])
local lease, adopted = tonumber(ARGV[2]), 0
for index = 3, #ARGV, 4 do
  local worker, connection, since, origin = unpack(ARGV, index, index + 3)
  if add(worker, connection, since, lease, origin) then
    adopted = adopted + 1
    local connections = call('ZCARD', connections_of(worker))
    if lifetime_of(worker) < connections then
      call('HSET', LIFETIME, field(worker), connections)
      file(worker)
    end
  end
end
tally('adopted', adopted)
return adopted
