-- Whose turn it is in a line: what `line.lua` and `uses.lua` share. Among the accounts that wait in a line the one
-- comes first that has the fewest browsers; among those with equally many the one for which this has been so for
-- longest. Within an account it is first come, first served.
-- ARGV[1] turns, template by line
-- ARGV[2] order, template by account and line
-- ARGV[3] held, template by account
-- ARGV[4] waits, template by account
-- ARGV[5] bell, template by ticket, or by `lines` for the one that tells of a new line

-- A turn is one number: browsers in use, then milliseconds since 2026. It is exact up to 9,000 browsers.
local ONE_BROWSER = 1000000000000
local YEAR_2026 = 1767225600000
-- So many lines of an account follow a change of its use at once, the others when their tickets are prolonged: an
-- account that waits for a thousand kinds of browsers must not hold Redis up.
local MOST_LINES = 32

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)

local function integer(number)
  return string.format('%.0f', number)
end

-- Browsers that the account has, those of dead processes excluded.
local function count_held(account)
  local held = string.format(ARGV[3], account)
  redis.call('ZREMRANGEBYSCORE', held, '-inf', now_ms)
  return redis.call('ZCARD', held)
end

-- Gives the account its turn among those in the line that have as many browsers: the last.
local function set_turn(line, account, held)
  local turns = string.format(ARGV[1], line)
  local least = held * ONE_BROWSER
  local most = integer(least + ONE_BROWSER - 1)
  -- Later than the last, also within one millisecond: equal turns would be ordered by name.
  local last = redis.call('ZRANGE', turns, most, integer(least), 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
  local turn = math.max(least + now_ms - YEAR_2026, (tonumber(last[2]) or 0) + 1)
  redis.call('ZADD', turns, integer(turn), account)
end

-- The ticket that is served next, and its account.
local function head(line)
  local turns = string.format(ARGV[1], line)
  while true do
    local account = redis.call('ZRANGE', turns, 0, 0)[1]
    if not account then return nil end
    local ticket = redis.call('ZRANGE', string.format(ARGV[2], account, line), 0, 0)[1]
    if ticket then return ticket, account end
    redis.call('ZREM', turns, account)
  end
end

-- Calls the head of the line, if it is another than before.
local function call_head(line, before)
  local called = head(line)
  if called and called ~= before then
    redis.call('PUBLISH', string.format(ARGV[5], called), '')
  end
end
