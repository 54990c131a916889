-- Takes connections off a worker's counter that nothing stands for: a proxy of another make has counted them and was
-- killed, or gave up. Those with a lease stay.
-- ARGV[1] worker
-- ARGV[2] surplus, how many
-- returns how many were taken off

local worker = ARGV[1]
local shown = tonumber(call('HGET', ACTIVE, field(worker)) or 0)
local left = math.max(call('ZCARD', connections_of(worker)), shown - ARGV[2])
if left >= shown then return 0 end
call('HSET', ACTIVE, field(worker), left)
tally('corrected', shown - left)
file(worker)
ring()
return shown - left
